"""Properties of a Lance REST Namespace server, in the names of other clients and in ours."""

from __future__ import annotations

import lance_namespace.errors as err
import pytest

from lance_ns_async.backends.rest.backend import RestSettings

URL = "https://lance.example.com"


def test_a_configuration_of_pylance_carries_over() -> None:
    settings = RestSettings.parse(
        {
            "uri": URL,
            "delimiter": "::",
            "header.x-api-key": "key",
            "tls.cert_file": "cert.pem",
            "tls.key_file": "key.pem",
            "tls.ssl_ca_cert": "ca.pem",
            "tls.assert_hostname": "false",
        }
    )
    assert (settings.endpoint, settings.delimiter) == (URL, "::")
    assert settings.header["x-api-key"].get_secret_value() == "key"
    assert (settings.client_cert, settings.client_key, settings.ca_bundle) == ("cert.pem", "key.pem", "ca.pem")
    assert not settings.checks_hostname()


def test_our_own_names_mean_the_same() -> None:
    settings = RestSettings.parse({"rest.endpoint": URL, "ca_bundle": "ca.pem"})
    assert (settings.endpoint, settings.ca_bundle) == (URL, "ca.pem")
    assert settings.checks_hostname()


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"uri": URL, "endpoint": "https://other.example.com"}, "given twice with different values, also as uri"),
        ({"uri": URL, "delimiter": ""}, "delimiter: "),
        ({"uri": URL, "delimiter": "a b"}, "delimiter: "),
        ({"uri": URL, "credential": "id:secret"}, "oauth2_server_uri"),
        ({"uri": URL, "subject_token": "hush"}, "subject_token: give the address of the token endpoint with it"),
        ({"uri": URL, "oauth2_server_uri": f"{URL}/token"}, "give credential or subject_token with it"),
        ({"uri": URL, "tls.assert_hostname": "false"}, "tls.ssl_ca_cert"),
        ({"uri": URL, "min_depth": "2", "max_depth": "1"}, "max_depth: 1 is less than min_depth"),
        ({}, "endpoint: "),
        ({"url": URL}, "url: unknown, did you mean uri"),
    ],
)
def test_a_wrong_property_is_named(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(err.InvalidInputError) as caught:
        RestSettings.parse(properties)
    assert problem in str(caught.value)


def test_the_identity_has_no_secret() -> None:
    properties = {"uri": URL, "credential": "id:hush", "oauth2_server_uri": f"{URL}/token", "header.X": "hush"}
    assert RestSettings.parse(properties).identity() == f"{URL}|id"
