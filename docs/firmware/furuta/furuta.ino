// SPDX-License-Identifier: Apache-2.0
// Furuta pendulum on a Teensy 4.x (or any board with two quadrature inputs and the Encoder library): samples two encoders at a fixed rate,
// drives one motor through an H-bridge, speaks the protocol of docs/serial_protocol.md over USB. Adapt the block "Your hardware".
#include <Encoder.h>
#include "furuta_protocol.h"

// ---- Your hardware -------------------------------------------------------------------------------------------------------------------------
const uint8_t ARM_A = 2, ARM_B = 3, ROD_A = 5, ROD_B = 6;  // encoder pins
const uint8_t PWM = 9, FORWARD = 10, BACKWARD = 11;        // H-bridge
const int32_t ARM_COUNTS = 2048, ROD_COUNTS = 2048;        // counts per turn; negative turns the sign
const float SUPPLY = 12.0f;                                // V at full duty
const float LIMIT = 6.0f;                                  // V, never exceeded
const uint16_t RATE = 200;                                 // samples per second
const uint16_t TIMEOUT_MS = 100;                           // an older command is set to zero
// ---------------------------------------------------------------------------------------------------------------------------------------------

Encoder arm(ARM_A, ARM_B), rod(ROD_A, ROD_B);
furuta::Receiver receiver;
uint8_t out[furuta::LONGEST + 4];
uint16_t sequence = 0;
uint32_t due = 0, given = 0;
float value = 0;
uint8_t flags = 0;
bool streaming = false;

void drive(float volts) {
  digitalWrite(FORWARD, volts > 0);
  digitalWrite(BACKWARD, volts < 0);
  analogWrite(PWM, static_cast<int>(fabsf(volts) / SUPPLY * 255.0f + 0.5f));
}

void send(uint8_t n) {
  // A full buffer means that nobody reads: dropping the frame keeps the timing, and the sequence number tells of it.
  if (Serial.availableForWrite() >= n) Serial.write(out, n);
}

void setup() {
  pinMode(FORWARD, OUTPUT);
  pinMode(BACKWARD, OUTPUT);
  pinMode(PWM, OUTPUT);
  drive(0);
  Serial.begin(921600);
  due = micros();
}

void loop() {
  while (Serial.available()) {
    switch (receiver.push(Serial.read())) {
      case furuta::HELLO: {
        furuta::Info info = {sequence, RATE, ARM_COUNTS, ROD_COUNTS, furuta::VOLTAGE, LIMIT, TIMEOUT_MS};
        send(furuta::pack(info, out));
        streaming = true;
        break;
      }
      case furuta::COMMAND:
        flags = fabsf(receiver.value) > LIMIT ? furuta::CUT : 0;
        value = constrain(receiver.value, -LIMIT, LIMIT);
        given = millis();
        break;
      case furuta::STOP:
        value = 0;
        flags = furuta::STOPPED;
        drive(0);  // does not wait for the next sample
        break;
    }
  }
  if (static_cast<int32_t>(micros() - due) < 0) return;
  due += 1000000UL / RATE;
  // Read first, then act: the command that is told with this sample drives the motor from this instant on.
  furuta::State state;
  state.microseconds = micros();
  state.arm = arm.read();
  state.pendulum = rod.read();
  if (value != 0 && millis() - given > TIMEOUT_MS) {
    value = 0;
    flags = furuta::RAN_OUT;
  }
  drive(value);
  state.sequence = sequence++;
  state.applied = value;
  state.flags = flags;
  if (streaming) send(furuta::pack(state, out));
}
