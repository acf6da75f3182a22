#!/usr/bin/env python3
"""Writes seal.txt, packets of `common::sealed` as an independent program computes them.

Needs the package `cryptography`; HChaCha20 is written out here.
"""
import pathlib, struct
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305


def hchacha(key, block):
    state = list(struct.unpack("<16I", b"expand 32-byte k" + key + block))

    def quarter(a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            word = state[z] ^ state[x]
            state[z] = ((word << turn) | (word >> (32 - turn))) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return struct.pack("<8I", *(state[:4] + state[12:]))


# The test vector of draft-irtf-cfrg-xchacha-03, 2.2.1.
assert hchacha(bytes(range(32)), bytes.fromhex("000000090000004a0000000031415927")).hex() == \
    "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"

KEY, SEED, OTHER, NAME = b"\x07" * 32, b"\x03" * 16, b"\x09" * 16, b"board-1"
FRAME = b"twenty-one bytes here"


def label(use):
    return b"FairTier seal 2" + use


def seal(key, nonce, frame, head=b""):
    return ChaCha20Poly1305(key).encrypt(nonce, frame, head)


def counter(number):
    return struct.pack("<I", number)


DEVICE = hchacha(hchacha(KEY, label(b"n")), SEED)[:16]
HAIL = bytes([1, 2]) + DEVICE + NAME


def session(purpose):
    return hchacha(hchacha(hchacha(KEY, label(purpose)), DEVICE), OTHER)


def challenge(kind, purpose):
    return bytes([kind]) + OTHER + seal(hchacha(session(purpose), label(b"d")), bytes(12), b"", HAIL)


def up(number, frame):
    key = hchacha(hchacha(session(b"f"), label(b"x")), counter(number) + counter(len(frame)) + bytes(8))
    for at in range(0, len(frame), 16):
        key = hchacha(key, frame[at:at + 16].ljust(16, b"\0"))
    sealed = seal(hchacha(session(b"f"), label(b"u")), key[:8] + counter(number), frame)
    return b"\3" + counter(number) + sealed[:-16] + key[:8] + sealed[-16:]


def down(number, frame):
    return b"\3" + counter(number) + seal(hchacha(session(b"f"), label(b"d")), bytes(8) + counter(number), frame)


FIRST_HAIL = bytes([1, 1]) + SEED + NAME
FIRST = hchacha(hchacha(KEY, SEED), OTHER)


def first(direction, number, frame):
    return b"\3" + counter(number) + seal(FIRST, bytes([direction]) + bytes(7) + counter(number), frame)


PACKETS = {
    "hail": HAIL,
    "challenge": challenge(2, b"f"),
    "provision": challenge(0x14, b"s"),
    "up-1": up(1, FRAME),
    "up-2": up(2, b""),
    "down-1": down(1, FRAME),
    "first-hail": FIRST_HAIL,
    "first-challenge": b"\2" + OTHER + seal(FIRST, b"\1" + bytes(11), b"", FIRST_HAIL),
    "first-up-1": first(0, 1, FRAME),
    "first-down-1": first(1, 1, FRAME),
}
text = "".join(f"{name} {packet.hex()}\n" for name, packet in PACKETS.items())
pathlib.Path(__file__).with_name("seal.txt").write_text(text)
