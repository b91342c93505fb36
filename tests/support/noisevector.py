"""Randomness that always gives the same, as the published vector of the channel wants it."""

import hashlib
from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from kyber_py.ml_kem import ML_KEM_768  # type: ignore[import-untyped]

from holdfast.wire.noise import KeyPair


def stretch(label: str, size: int) -> bytes:
    """The first bytes of SHA256(label, 0), SHA256(label, 1), ..."""
    blocks = (hashlib.sha256(label.encode() + bytes((number,))).digest() for number in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def make_keys(party: str, kind: str) -> KeyPair:
    """Of `i` or `r`, static (`s`) or ephemeral (`e`)."""
    curve, kem = stretch(f"{party}-{kind}-x", 32), stretch(f"{party}-{kind}-k", 64)
    return KeyPair.make(X25519PrivateKey.from_private_bytes(curve), MLKEM768PrivateKey.from_seed_bytes(kem))


class Scripted:
    """Gives what the labels say, one after the other."""

    def __init__(self, party: str, *encapsulations: str) -> None:
        self._party = party
        self._labels: Iterator[str] = iter(encapsulations)

    def keys(self) -> KeyPair:
        return make_keys(self._party, "e")

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        secret, sealed = ML_KEM_768._encaps_internal(public, stretch(next(self._labels), 32))
        return secret, sealed
