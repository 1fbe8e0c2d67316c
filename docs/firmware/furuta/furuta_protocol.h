// SPDX-License-Identifier: Apache-2.0
// The wire protocol of docs/serial_protocol.md in plain C++11: frames in COBS, CRC-16, packing. No Arduino needed, so it is tested on a PC.
#pragma once
#include <stdint.h>
#include <string.h>

namespace furuta {

const uint8_t VERSION = 1;
enum Type : uint8_t { STATE = 0x01, INFO = 0x02, COMMAND = 0x10, HELLO = 0x11, STOP = 0x12 };
enum Kind : uint8_t { TORQUE = 0, VOLTAGE = 1 };
enum Flag : uint8_t { RAN_OUT = 1, CUT = 2, STOPPED = 4 };
const uint8_t LONGEST = 64;  // bytes of a stuffed frame

// CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xFFFF.
inline uint16_t crc16(const uint8_t* data, uint8_t n) {
  uint16_t crc = 0xFFFF;
  while (n--) {
    crc ^= static_cast<uint16_t>(*data++) << 8;
    for (uint8_t bit = 0; bit < 8; ++bit) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc;
}

// Little-endian writer into a fixed buffer.
struct Packer {
  uint8_t bytes[LONGEST];
  uint8_t size = 0;
  void u8(uint8_t x) { bytes[size++] = x; }
  void u16(uint16_t x) { u8(x); u8(x >> 8); }
  void u32(uint32_t x) { u16(x); u16(x >> 16); }
  void i32(int32_t x) { u32(static_cast<uint32_t>(x)); }
  void f32(float x) { uint32_t bits; memcpy(&bits, &x, 4); u32(bits); }
};

// Appends the checksum, stuffs, closes with a zero; `out` needs room for size + 4 bytes. Returns how many bytes to send.
inline uint8_t close_frame(Packer& p, uint8_t* out) {
  p.u16(crc16(p.bytes, p.size));
  uint8_t at = 1, code_at = 0, code = 1;
  for (uint8_t i = 0; i < p.size; ++i) {
    if (p.bytes[i] == 0) {
      out[code_at] = code;
      code_at = at++;
      code = 1;
    } else {
      out[at++] = p.bytes[i];
      ++code;
    }
  }
  out[code_at] = code;
  out[at++] = 0;
  return at;
}

struct State {
  uint16_t sequence;
  uint32_t microseconds;
  int32_t arm, pendulum;
  float applied;
  uint8_t flags;
};

inline uint8_t pack(const State& s, uint8_t* out) {
  Packer p;
  p.u8(STATE); p.u16(s.sequence); p.u32(s.microseconds); p.i32(s.arm); p.i32(s.pendulum); p.f32(s.applied); p.u8(s.flags);
  return close_frame(p, out);
}

struct Info {
  uint16_t sequence;
  uint16_t rate;
  int32_t arm_counts, pendulum_counts;
  uint8_t kind;
  float limit;
  uint16_t timeout_ms;
};

inline uint8_t pack(const Info& i, uint8_t* out) {
  Packer p;
  p.u8(INFO); p.u16(i.sequence); p.u8(VERSION); p.u16(i.rate); p.i32(i.arm_counts); p.i32(i.pendulum_counts);
  p.u8(i.kind); p.f32(i.limit); p.u16(i.timeout_ms);
  return close_frame(p, out);
}

// Collects bytes; `push` returns the type of a sound frame when a byte completes one, otherwise 0.
class Receiver {
 public:
  uint16_t sequence = 0;
  float value = 0;     // of a COMMAND
  uint32_t wrong = 0;  // frames that were not sound

  uint8_t push(uint8_t byte) {
    if (byte != 0) {
      if (size_ < LONGEST) buffer_[size_++] = byte; else overrun_ = true;
      return 0;
    }
    uint8_t type = (size_ && !overrun_) ? decode() : 0;
    if (size_ && !type) ++wrong;
    size_ = 0;
    overrun_ = false;
    return type;
  }

 private:
  uint8_t buffer_[LONGEST];
  uint8_t size_ = 0;
  bool overrun_ = false;

  uint8_t decode() {
    uint8_t data[LONGEST], n = 0, at = 0;
    while (at < size_) {
      uint8_t code = buffer_[at];
      if (at + code > size_) return 0;
      for (uint8_t k = 1; k < code; ++k) data[n++] = buffer_[at + k];
      at += code;
      if (at < size_) data[n++] = 0;
    }
    if (n < 5 || crc16(data, n - 2) != (data[n - 2] | static_cast<uint16_t>(data[n - 1]) << 8)) return 0;
    sequence = data[1] | static_cast<uint16_t>(data[2]) << 8;
    if (data[0] == COMMAND && n == 9) {
      uint32_t bits = 0;
      for (uint8_t k = 0; k < 4; ++k) bits |= static_cast<uint32_t>(data[3 + k]) << (8 * k);
      memcpy(&value, &bits, 4);
      return value == value ? COMMAND : 0;  // NaN is no command
    }
    if (data[0] == HELLO && n == 6) return HELLO;
    if (data[0] == STOP && n == 5) return STOP;
    return 0;
  }
};

}  // namespace furuta
