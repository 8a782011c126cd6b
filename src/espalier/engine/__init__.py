"""The runtime: step loop, scheduler, radix cache, KV pool, sampling."""
