"""Progress, and live output by print."""

from toolhost import call, plugin, tool

plugin("progress", description="Numbers.")


@tool(readonly=True, idempotent=True, open_world=False)
def primes(limit: int) -> list[int]:
    """Lists the primes below a limit of at most 100,000."""
    found = []
    for n in range(2, min(limit, 100_000)):
        if n % 10 == 0:
            call.progress(n, limit, f"{len(found)} primes")
        if all(n % p for p in found if p * p <= n):
            found.append(n)
            print("found", n)
    return found
