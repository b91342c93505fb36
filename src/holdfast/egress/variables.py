"""The variables that tell programs which proxy to use. Pure module."""

from typing import Final

# Set to the HTTP proxy's address; programs differ in which of them they read.
_HTTP: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"),
    *("WS_PROXY", "WSS_PROXY", "ws_proxy", "wss_proxy"),
    *("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "PIP_PROXY"),
    *("NPM_CONFIG_PROXY", "NPM_CONFIG_HTTP_PROXY", "NPM_CONFIG_HTTPS_PROXY"),
    *("npm_config_proxy", "npm_config_http_proxy", "npm_config_https_proxy"),
    *("BUNDLE_HTTP_PROXY", "BUNDLE_HTTPS_PROXY", "DOCKER_HTTP_PROXY", "DOCKER_HTTPS_PROXY"),
)
_SOCKS: Final = ("ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy")
_WITHOUT: Final = ("NO_PROXY", "no_proxy", "NPM_CONFIG_NOPROXY", "npm_config_noproxy", "BUNDLE_NO_PROXY")
LOCAL: Final = "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"


def name_proxy(http: str, socks: str | None, *, local_binding: bool) -> dict[str, str]:
    """The variables for proxies at these addresses (host:port), as the reference sets them."""
    url = f"http://{http}"
    every = url if socks is None else f"socks5h://{socks}"
    return (
        dict.fromkeys(_HTTP, url)
        | dict.fromkeys(_SOCKS, every)
        | dict.fromkeys(_WITHOUT, LOCAL if local_binding else "")
        | {
            "CODEX_NETWORK_PROXY_ACTIVE": "1",
            "CODEX_NETWORK_ALLOW_LOCAL_BINDING": "1" if local_binding else "0",
            "ELECTRON_GET_USE_PROXY": "true",
            "NODE_USE_ENV_PROXY": "1",
        }
    )
