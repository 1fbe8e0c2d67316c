# SPDX-License-Identifier: Apache-2.0
"""Other ways to the centroidal state: filters and smoothers in plain numpy, DDP in plain numpy, DDP by crocoddyl."""

import numpy as np

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

    def sense(self, x, o):
        """g(x) of the 15 centroidal states in numpy; falls back on the package for other layouts."""
        if self.layout.size != 15:
            return np.concatenate([np.asarray(predict(self.layout, b, x, o, self.m, self.g)) for b in self.blocks])
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
            return np.vstack([np.asarray(jacobian(self.layout, b, x, o, self.m, self.g)) for b in self.blocks])
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


def complementary(plain, com_rate, momentum_rate, force_rate):
    """Recursive complementary filter on (c, force, moment, L): low frequencies from kinematics, high from forces; rates in 1/s."""
    X = np.zeros((len(plain.y), 15))
    x = plain.mean.copy()
    dts = np.r_[0, np.diff(np.asarray(plain.problem.time))]
    for k, (y, dt) in enumerate(zip(plain.y, dts, strict=True)):
        c, f, n, L = y[0:3], y[3:6], y[6:9], y[9:12]
        x[9:12] += (1 - np.exp(-force_rate * dt)) * (f - x[9:12]) if k else f - x[9:12]
        moment = n - np.cross(x[0:3] - plain.o[k], x[9:12])
        x[12:15] += (1 - np.exp(-force_rate * dt)) * (moment - x[12:15]) if k else moment - x[12:15]
        p = x[3:6] + dt * (x[9:12] + plain.m * plain.g)
        e = c - x[0:3]
        x[0:3] += dt * p / plain.m + dt * 2 * com_rate * e
        x[3:6] = p + dt * plain.m * com_rate**2 * e
        x[6:9] += dt * x[12:15] + dt * momentum_rate * (L - x[6:9])
        X[k] = x
    return X


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
