"""A certificate for 127.0.0.1 that nobody trusts, and its key, which guards nothing."""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBWTCCAQCgAwIBAgIBATAKBggqhkjOPQQDAjAdMRswGQYDVQQDDBJhIHRlc3Qg
b2YgdmVyaWxvb3AwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMB0x
GzAZBgNVBAMMEmEgdGVzdCBvZiB2ZXJpbG9vcDBZMBMGByqGSM49AgEGCCqGSM49
AwEHA0IABP3HiETAx/bQcPkyXp+R+CawLGkpHLgxFn2vLbnm00rfYPUkgAfjQAvZ
osncKTuyifXN+9SjiipkU0Z+Mj2l5uijLzAtMBoGA1UdEQQTMBGHBH8AAAGCCWxv
Y2FsaG9zdDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIFr2qSvX
9uNzPG95WUi5AGRg74JgDAyd0hDk73vBqKKZAiAMB+DA74UYerlzEAIPFetTuKfG
xD14HVhFELrFwA+uoA==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgKvqoPdVeus3t07WK
RpML/A7u9r1qoZUZEM6ZUXJvfLahRANCAAT9x4hEwMf20HD5Ml6fkfgmsCxpKRy4
MRZ9ry255tNK32D1JIAH40AL2aLJ3Ck7son1zfvUo4oqZFNGfjI9pebo
-----END PRIVATE KEY-----
"""


def server_context(folder: Path) -> ssl.SSLContext:
    """A server's side of the encryption; the certificate is written to `folder/cert.pem`."""
    (folder / "cert.pem").write_text(CERTIFICATE)
    (folder / "key.pem").write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
