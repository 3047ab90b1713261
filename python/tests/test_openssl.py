"""Another implementation of TLS meets a party: the key exchange of a link is the standard's, not only our own."""

from __future__ import annotations

import socket

import pytest
import tomlkit

import covey

SSL = pytest.importorskip("OpenSSL.SSL", reason="pyOpenSSL is not installed")


def test_openssl_agrees_on_keys_with_a_party() -> None:
    if SSL.OPENSSL_VERSION_NUMBER < 0x30500000:
        pytest.skip("this OpenSSL is older than 3.5 and does not know X25519MLKEM768")
    with covey.local("trio") as parties:
        first, second = parties.parties[:2]
        key = str(first.config.parent / tomlkit.parse(first.config.read_text())["party"]["key"])
        host, port = tomlkit.parse(second.config.read_text())["party"]["listen"].rsplit(":", 1)
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.use_privatekey_file(key)
        context.use_certificate_file(key)
        context.set_alpn_protos([b"covey/1"])
        with socket.create_connection((host, int(port)), timeout=10) as connected:
            connected.setblocking(True)
            link = SSL.Connection(context, connected)
            link.set_connect_state()
            link.do_handshake()
            assert link.get_protocol_version_name() == "TLSv1.3"
            assert link.get_alpn_proto_negotiated() == b"covey/1"
            assert link.get_group_name() == "X25519MLKEM768"
            # Its first record after the handshake, under keys of both: a welcome or a refusal.
            assert link.recv(1)
            link.shutdown()
