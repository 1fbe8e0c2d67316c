# SPDX-License-Identifier: Apache-2.0
"""Other ways to the centroidal state: filters and smoothers in plain numpy, DDP in plain numpy, DDP by crocoddyl."""

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.centroidal.model import chain, jacobian, predict


class Plain:
    """A `Problem` as dense numpy arrays with all blocks stacked; the sensors are y = (c, force, moment, L, ...)."""

    def __init__(self, problem):
        self.problem, self.layout, self.blocks = problem, problem.layout, tuple(problem.information)
        structure = chain(problem.layout)
        n, nw = problem.noise_information.shape
        nx = problem.layout.size
        self.A = np.asarray(structure.dense(problem.entries, nx))
        self.B = np.asarray(structure.drive(self.A))
        self.b = np.asarray(problem.offsets)
        self.Qi = np.stack([np.diag(q) for q in np.asarray(problem.noise_information)])
        self.y = np.hstack([np.asarray(v) for v in problem.values.values()])
        self.Ri = np.zeros((n + 1, self.y.shape[1], self.y.shape[1]))
        at = 0
        for info in problem.information.values():
            d = info.shape[1]
            self.Ri[:, at : at + d, at : at + d] = info
            at += d
        self.o = np.asarray(problem.anchor)
        self.mean, self.P0i = np.asarray(problem.prior_mean), np.asarray(problem.prior_information)
        self.m, self.g = float(problem.mass), np.asarray(problem.gravity)
        self.rows = {}
        at = 0
        for block, info in problem.information.items():
            self.rows[block] = slice(at, at + info.shape[1])
            at += info.shape[1]
        self.constant = np.vstack(
            [np.asarray(jacobian(self.layout, b, self.mean, self.o[0], self.m, self.g)) for b in self.blocks]
        )

        self._sense = jax.jit(lambda x, o: jnp.concatenate([predict(self.layout, b, x, o, self.m, self.g) for b in self.blocks]))
        self._slope = jax.jit(lambda x, o: jnp.vstack([jacobian(self.layout, b, x, o, self.m, self.g) for b in self.blocks]))

    def sense(self, x, o):
        """g(x) of the 15 centroidal states in numpy; falls back on the package for other layouts."""
        if self.layout.size != 15:
            return np.asarray(self._sense(x, o))
        y = self.constant @ x
        for block in ('acceleration', 'linear_momentum_rate'):
            if block in self.rows:
                y[self.rows[block]] += self.g * (self.m if block == 'linear_momentum_rate' else 1)
        if 'contact_wrench' in self.rows:
            start = self.rows['contact_wrench'].start
            y[start + 3 : start + 6] = np.cross(x[0:3] - o, x[9:12]) + x[12:15]
        return y

    def jacobian(self, x, o):
        if self.layout.size != 15:
            return np.asarray(self._slope(x, o))
        h = self.constant.copy()
        if 'contact_wrench' in self.rows:
            start = self.rows['contact_wrench'].start
            h[start + 3 : start + 6, 0:3] = -skew(x[9:12])
            h[start + 3 : start + 6, 9:12] = skew(x[0:3] - o)
        return h

    def cost(self, X, W):
        e = X[0] - self.mean
        total = e @ self.P0i @ e
        for k, x in enumerate(X):
            r = self.sense(x, self.o[k]) - self.y[k]
            total += r @ self.Ri[k] @ r
        return (total + np.einsum('ki,kij,kj', W, self.Qi, W)) / 2

    def roll(self, x, W):
        X = [x]
        for k, w in enumerate(W):
            X.append(self.A[k] @ X[-1] + self.B[k] @ w + self.b[k])
        return np.array(X)


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def numpy_ddp(plain, iterations=50, tolerance=1e-12):
    """Gauss-Newton DDP stage by stage, as one writes it first."""
    A, B, n, nw = plain.A, plain.B, len(plain.A), plain.B.shape[2]
    W = np.zeros((n, nw))
    X = plain.roll(plain.mean, W)
    now = plain.cost(X, W)
    for _ in range(iterations):
        K, k = np.empty((n, nw, X.shape[1])), np.empty((n, nw))
        for s in range(n, -1, -1):
            h = plain.jacobian(X[s], plain.o[s])
            hr = h.T @ plain.Ri[s]
            lx, lxx = hr @ (plain.sense(X[s], plain.o[s]) - plain.y[s]), hr @ h
            if s == n:
                vx, vxx = lx, lxx
                continue
            va = vxx @ A[s]
            qww, qwx, qw = plain.Qi[s] + B[s].T @ vxx @ B[s], B[s].T @ va, plain.Qi[s] @ W[s] + B[s].T @ vx
            inverse = np.linalg.inv(qww)
            K[s], k[s] = -inverse @ qwx, -inverse @ qw
            vx, vxx = lx + A[s].T @ vx + qwx.T @ k[s], lxx + A[s].T @ va + qwx.T @ K[s]
            vxx = (vxx + vxx.T) / 2
        first = -np.linalg.solve(vxx + plain.P0i, vx + plain.P0i @ (X[0] - plain.mean))
        alpha = 1.0
        while alpha > 1e-6:
            Xn, Wn = [X[0] + alpha * first], np.empty_like(W)
            for s in range(n):
                Wn[s] = W[s] + alpha * k[s] + K[s] @ (Xn[s] - X[s])
                Xn.append(A[s] @ Xn[s] + B[s] @ Wn[s] + plain.b[s])
            Xn = np.array(Xn)
            after = plain.cost(Xn, Wn)
            if after <= now * (1 + 1e-13):
                break
            alpha /= 2
        moved = np.abs(Xn - X).max()
        X, W, now = Xn, Wn, after
        if moved < tolerance * (1 + np.abs(X).max()):
            break
    return X, W, now


def ekf(plain):
    """Extended Kalman filter; return filtered means and covariances, predicted means and covariances."""
    x, P = plain.mean, np.linalg.inv(plain.P0i)
    kept = []
    for k in range(len(plain.y)):
        predicted = x, P
        h = plain.jacobian(x, plain.o[k])
        S = np.linalg.inv(P) + h.T @ plain.Ri[k] @ h  # information form: absent sensors need no case of their own
        P = np.linalg.inv(S)
        x = x - P @ h.T @ plain.Ri[k] @ (plain.sense(x, plain.o[k]) - plain.y[k])
        kept.append((x, P, *predicted))
        if k < len(plain.A):
            x, P = (
                plain.A[k] @ x + plain.b[k],
                plain.A[k] @ P @ plain.A[k].T + plain.B[k] @ np.linalg.inv(plain.Qi[k]) @ plain.B[k].T,
            )
    return [np.array(part) for part in zip(*kept, strict=True)]


def rts(plain, filtered):
    """Rauch-Tung-Striebel smoother over the results of `ekf`."""
    xf, Pf, xp, Pp = filtered
    xs, Ps = xf.copy(), Pf.copy()
    for k in range(len(xf) - 2, -1, -1):
        G = np.linalg.solve(Pp[k + 1], plain.A[k] @ Pf[k]).T
        xs[k] = xf[k] + G @ (xs[k + 1] - xp[k + 1])
        Ps[k] = Pf[k] + G @ (Ps[k + 1] - Pp[k + 1]) @ G.T
    return xs, Ps


def rts_lag(plain, filtered, lag):
    """The same, but each state sees only ``lag`` samples after its own; all but the last ``lag`` states."""
    xf, Pf, xp, Pp = filtered
    gains = [np.linalg.solve(Pp[k + 1], plain.A[k] @ Pf[k]).T for k in range(len(xf) - 1)]
    states, covariances = [], []
    for last in range(lag, len(xf)):
        x, P = xf[last], Pf[last]
        for k in range(last - 1, last - lag - 1, -1):
            x, P = xf[k] + gains[k] @ (x - xp[k + 1]), Pf[k] + gains[k] @ (P - Pp[k + 1]) @ gains[k].T
        states.append(x)
        covariances.append(P)
    return np.array(states), np.array(covariances)


def _correct(plain, x, k, dt, com_rate, momentum_rate, force_rate):
    """One step of the complementary filter over dt, negative to go back in time: integrate forces, correct by kinematics."""
    c, f, n, L = plain.y[k, 0:3], plain.y[k, 3:6], plain.y[k, 6:9], plain.y[k, 9:12]
    x, h = x.copy(), abs(dt)
    share = 1 - np.exp(-force_rate * h)
    x[9:12] += share * (f - x[9:12])
    x[12:15] += share * (n - np.cross(x[0:3] - plain.o[k], x[9:12]) - x[12:15])
    p, e = x[3:6] + dt * (x[9:12] + plain.m * plain.g), c - x[0:3]
    x[0:3] += dt * p / plain.m + h * 2 * com_rate * e
    x[3:6] = p + dt * plain.m * com_rate**2 * e
    x[6:9] += dt * x[12:15] + h * momentum_rate * (L - x[6:9])
    return x


def complementary(plain, com_rate, momentum_rate, force_rate):
    """Recursive complementary filter on (c, force, moment, L): low frequencies from kinematics, high from forces; rates in 1/s."""
    x = plain.mean.copy()
    x[9:12] = plain.y[0, 3:6]
    x[12:15] = plain.y[0, 6:9] - np.cross(x[0:3] - plain.o[0], x[9:12])
    X, steps = [x], np.diff(np.asarray(plain.problem.time))
    for k, dt in enumerate(steps, start=1):
        X.append(_correct(plain, X[-1], k, dt, com_rate, momentum_rate, force_rate))
    return np.array(X)


def complementary_lag(plain, lag, *rates, stride=1):
    """With ``lag`` later samples: the same filter runs back from the newest one, and both ways are averaged.

    ``stride`` computes only every so many states and holds them in between, for tuning.
    """
    ahead, steps = complementary(plain, *rates), np.diff(np.asarray(plain.problem.time))
    X = []
    for first in range(0, len(ahead) - lag, stride):
        x = ahead[first + lag]
        for k in range(first + lag - 1, first - 1, -1):
            x = _correct(plain, x, k, -steps[k], *rates)
        X += [(ahead[first] + x) / 2] * min(stride, len(ahead) - lag - first)
    return np.array(X)


def crocoddyl_solver(plain, solver='FDDP'):
    """Set the problem up for crocoddyl, stages in Python; return a function that solves it from the prior, and the count of steps.

    crocoddyl has no free first state: an extra first stage chooses x_0 - xbar_0 as its control.
    """
    import crocoddyl

    nx, nw = len(plain.mean), plain.B.shape[2]

    class Arrival(crocoddyl.ActionModelAbstract):
        def __init__(self):
            super().__init__(crocoddyl.StateVector(nx), nx, 1)

        def calc(self, data, x, u=None):
            u = np.zeros(nx) if u is None else u
            data.xnext, data.cost = plain.mean + u, u @ plain.P0i @ u / 2

        def calcDiff(self, data, x, u=None):
            data.Fx, data.Fu, data.Lx = np.zeros((nx, nx)), np.eye(nx), np.zeros(nx)
            data.Lxx, data.Lxu, data.Luu, data.Lu = np.zeros((nx, nx)), np.zeros((nx, nx)), plain.P0i, plain.P0i @ u

    class Stage(crocoddyl.ActionModelAbstract):
        def __init__(self, k):
            self.k, self.last = k, k == len(plain.A)
            super().__init__(crocoddyl.StateVector(nx), 0 if self.last else nw, 1)

        def calc(self, data, x, u=None):
            k = self.k
            r = plain.sense(x, plain.o[k]) - plain.y[k]
            data.cost = r @ plain.Ri[k] @ r / 2
            if self.last or u is None:
                data.xnext = x.copy()
            else:
                data.cost += u @ plain.Qi[k] @ u / 2
                data.xnext = plain.A[k] @ x + plain.B[k] @ u + plain.b[k]

        def calcDiff(self, data, x, u=None):
            k = self.k
            h = plain.jacobian(x, plain.o[k])
            hr = h.T @ plain.Ri[k]
            data.Lx, data.Lxx = hr @ (plain.sense(x, plain.o[k]) - plain.y[k]), hr @ h
            if not (self.last or u is None):
                data.Lu, data.Luu, data.Lxu = plain.Qi[k] @ u, plain.Qi[k], np.zeros((nx, nw))
                data.Fx, data.Fu = plain.A[k], plain.B[k]

    n = len(plain.A)
    problem = crocoddyl.ShootingProblem(plain.mean, [Arrival(), *[Stage(k) for k in range(n)]], Stage(n))
    solver = getattr(crocoddyl, f'Solver{solver}')(problem)
    solver.th_stop = 1e-14
    us = [np.zeros(nx), *[np.zeros(nw)] * n]
    xs = [plain.mean, *plain.roll(plain.mean, np.zeros((n, nw)))]

    def run():
        solver.solve(xs, us, 100, False, 0.0)
        return np.array(list(solver.xs)[1:]), solver.iter, solver.cost

    return run


def crocoddyl_iteration(n):
    """Set up a linear-quadratic problem of the same sizes with crocoddyl's own compiled stages; return a function of one iteration."""
    import crocoddyl

    stages = [crocoddyl.ActionModelLQR(15, 6) for _ in range(n + 1)]
    solver = crocoddyl.SolverDDP(crocoddyl.ShootingProblem(np.ones(15), stages[:-1], stages[-1]))
    xs, us = [np.ones(15)] * (n + 1), [np.zeros(6)] * n
    return lambda: solver.solve(xs, us, 1, False, 1e-9)
