"""The field, the signatures and the code of strongroom-galois, from their definitions alone.

Prints the golden values that the crate's tests hold. It shares nothing with the Rust code but the
definitions, so the two agreeing is evidence for both. Run: python3 golden.py
"""


def mul(a, b):
    """The product in GF(2)[x] / (x^16 + x^12 + x^3 + x + 1)."""
    product = 0
    for bit in range(16):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(30, 15, -1):
        if product >> bit & 1:
            product ^= 0x1100B << (bit - 16)
    return product


def power(a, exponent):
    result = 1
    while exponent:
        if exponent & 1:
            result = mul(result, a)
        a = mul(a, a)
        exponent >>= 1
    return result


def inverse(a):
    return power(a, 65534)


def lcg(seed, length):
    """The top bytes of Knuth's 64-bit linear congruential generator, from its second state on."""
    state, out = seed, bytearray()
    for _ in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return bytes(out)


def symbols(page):
    page += b"\0" * (len(page) % 2)
    return [page[i] | page[i + 1] << 8 for i in range(0, len(page), 2)]


def signature(page, n):
    """sig_e = sum of p_i * alpha^(e*i), alpha = x^1024, for the first n of e = 1, -1, 3, -3, ..."""
    result = []
    for e in [1, -1, 3, -3, 5, -5][:n]:
        step, weight, total = power(power(2, 1024), e % 65535), 1, 0
        for symbol in symbols(page):
            total ^= mul(symbol, weight)
            weight = mul(weight, step)
        result.append(total)
    return result


def parity(shards, p):
    """Parity shard j has point j, data shard i has point m + i; m is the power of two >= p."""
    m = 1
    while m < p:
        m *= 2
    result = []
    for u in range(p):
        total = [0] * len(symbols(shards[0]))
        for i, shard in enumerate(shards):
            numerator = denominator = 1
            for other in range(m):
                if other != u:
                    numerator = mul(numerator, (m + i) ^ other)
                    denominator = mul(denominator, u ^ other)
            coefficient = mul(numerator, inverse(denominator))
            for at, symbol in enumerate(symbols(shard)):
                total[at] ^= mul(coefficient, symbol)
        result.append(b"".join(bytes([t & 255, t >> 8]) for t in total))
    return result


if __name__ == "__main__":
    print("product", hex(mul(0x1234, 0xABCD)), "inverse", hex(inverse(3)))
    for length in (0, 1, 2, 127, 128, 1000, 4097):
        print("signature", length, [hex(s) for s in signature(lcg(1, length), 4)])
    for k, p, shard_bytes in ((1, 1, 2), (3, 2, 4), (5, 3, 6), (17, 5, 4)):
        data = lcg(2, k * shard_bytes)
        shards = [data[i * shard_bytes : (i + 1) * shard_bytes] for i in range(k)]
        print("parity", k, p, shard_bytes, b"".join(parity(shards, p)).hex())
