r"""A peer in a process of its own, and perhaps of another Python: a question a line comes in as JSON, CPU seconds and answer go out.

It imports nothing of this project, so that it runs where only the peer is installed: ``python benchmarks/peer_process.py LIBRARY``.
"""

from __future__ import annotations

import importlib
import json
import sys
import time


def opake(q, std, count, delta):
    """opake-accounting, grid 1e-4."""
    library = importlib.import_module("opake.api.accounting.core").opake_accounting
    config = library.DiscretizationConfig(discretization=1e-4)
    return library.poisson_pld(library.gaussian_pld(std, config), q).self_compose(count).epsilon_at(delta)


def prv(q, std, count, delta):
    """prv-accountant, error 0.1: the upper end."""
    library = importlib.import_module("prv_accountant")
    mechanism = library.PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=std)
    accountant = library.PRVAccountant(prvs=[mechanism], max_self_compositions=[count], eps_error=0.1, delta_error=delta / 1000)
    return accountant.compute_epsilon(delta=delta, num_self_compositions=[count])[2]


def opacus_prv(q, std, count, delta):
    """opacus' PRV accountant, default errors."""
    accountant = importlib.import_module("opacus.accountants").PRVAccountant()
    accountant.history = [(std, q, count)]
    return accountant.get_epsilon(delta)


def opacus_rdp(q, std, count, delta):
    """opacus' Renyi accountant."""
    accountant = importlib.import_module("opacus.accountants").RDPAccountant()
    accountant.history = [(std, q, count)]
    return accountant.get_epsilon(delta)


def jax_privacy(q, std, count, delta):
    """jax-privacy's experimental Monte Carlo accountant: the epsilon at which 10 000 sampled losses have this delta.

    Samples that are at least one release apart are Poisson samples.
    """
    numpy = importlib.import_module("numpy")
    strategy = importlib.import_module("jax_privacy.batch_selection").BMinSepSampling(sampling_prob=q, iterations=count, min_sep=1)
    sample = importlib.import_module("jax_privacy.experimental.monte_carlo.sample_generation").get_privacy_loss_sample
    estimate = importlib.import_module("jax_privacy.experimental.monte_carlo.delta_calculation").delta_from_epsilon_and_samples
    generator, identity = numpy.random.default_rng(22), numpy.array([1.0])
    losses = numpy.concatenate([sample(strategy, std, identity, seed=generator, num_samples=1000)[0] for _ in range(10)])
    low, high = 0.0, max(0.0, float(losses.max()))
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if estimate(middle, losses) > delta else (low, middle)
    return high


LIBRARIES = {"opake": opake, "prv": prv, "opacus_prv": opacus_prv, "opacus_rdp": opacus_rdp, "jax_privacy": jax_privacy}


def main(name):
    """Answers until the input ends. Whatever a library writes goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    ask = LIBRARIES[name]
    for line in sys.stdin:
        question = json.loads(line)
        start = time.process_time()
        try:
            result = {"answer": float(ask(*question))}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"[:200]}
        result["seconds"] = time.process_time() - start
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
