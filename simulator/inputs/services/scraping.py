"""One look at ``/metrics`` of a server: a GET to the address that was typed, and nothing else.

Redirects are not followed, proxies are not asked, an answer is at most ``MOST_BYTES`` long and
``MOST_S`` old. Headers and certificates are not kept.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from simulator.core.faults import BadInput

SCHEMES = ("http", "https")
METRICS = "/metrics"
OF_TENSORRT_LLM = "/prometheus/metrics"
MOST_BYTES = 20_000_000
MOST_S = 10.0
"""From the begin of the connection to the last byte."""
PIECE = 1 << 16


def is_address(source: str) -> bool:
    """Return whether a source is an address, not a file."""
    scheme, parted, _ = source.partition("://")
    return bool(parted) and scheme.isalnum()


class Server(NamedTuple):
    """A server whose ``/metrics`` is asked for."""

    typed: str
    address: SplitResult
    headers: Mapping[str, str]
    authority: Path | None
    """Certificates that are trusted, in the place of the system's."""

    @property
    def shown(self) -> str:
        """Return scheme, host and path, without anything that may be a secret."""
        return f"{self.address.scheme}://{self.address.netloc}{self.path}"

    @property
    def path(self) -> str:
        """Return the path that is asked for: that of the address, ``/metrics`` by default."""
        if self.address.path in ("", "/"):
            return METRICS
        return self.address.path


def server_at(typed: str, headers: Sequence[str], authority: Path | None) -> Server:
    """Return the server of an address; raises :class:`BadInput` for an address or a header that is
    none.
    """
    try:
        address = urlsplit(typed)
        port = address.port
        (address.hostname or "").encode("idna")
    except ValueError as error:  # its words may hold a password
        raise BadInput.at("address", "is none; expected http://HOST:PORT") from error
    if address.scheme not in SCHEMES:
        message = f"begins with none of {', '.join(SCHEMES)}; expected http://HOST:PORT"
        raise BadInput.at("address", message)
    if not address.hostname or port == 0:
        raise BadInput.at("address", "names no host; expected http://HOST:PORT")
    if "@" in address.netloc:
        message = "has a user or a password in it; expected them in --header, or in SPECSIM_HEADER"
        raise BadInput.at("address", message)
    if not (address.netloc + address.path + address.query).isascii() or " " in typed:
        raise BadInput.at("address", "has letters that no address has")
    return Server(typed, address, _headers(headers), authority)


def _headers(stated: Sequence[str]) -> dict[str, str]:
    """Return headers by name; faults about one do not show it."""
    headers = {}
    for header in stated:
        name, colon, value = header.partition(":")
        sound = name.replace("-", "").isalnum() and value.strip() and header.isprintable()
        if not (colon and sound and header.isascii()):
            raise BadInput.at("--header", "expected 'NAME: VALUE' in one line")
        headers[name] = value.strip()
    return headers


def scrape(server: Server) -> list[str]:
    """Return the lines of ``/metrics``; raises :class:`BadInput` where they do not come whole and
    in time.
    """
    content = _content(server)
    if content.lstrip()[:1] in (b"[", b"{"):
        shown = server._replace(address=server.address._replace(path=OF_TENSORRT_LLM)).shown
        message = f"answers with JSON; expected text, which TensorRT-LLM shows at {shown}"
        raise BadInput.at(server.shown, message)
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadInput.at(server.shown, "answers with what is not UTF-8 text") from error


def _content(server: Server) -> bytes:
    """Return what a server answers."""
    late = f"does not answer within {MOST_S:g} s"
    begun = monotonic()
    connection = _connection(server)
    try:
        connection.connect()
        with _ended_after(connection.sock, MOST_S - (monotonic() - begun)):
            query = f"?{server.address.query}" if server.address.query else ""
            asked = {"Accept": "text/plain", "Accept-Encoding": "identity", **server.headers}
            connection.request("GET", server.path + query, headers=asked)
            response = connection.getresponse()
            _check_status(server, response)
            content = _bounded(server, response)
    except ssl.SSLCertVerificationError as error:
        remedy = "name the certificates that it is signed by: --ca-file FILE"
        message = f"is not trusted ({error.verify_message}); {remedy}"
        raise BadInput.at(server.shown, message) from error
    except ssl.SSLError as error:
        message = f"speaks no TLS ({error.reason or 'no reason'}); is it a http:// server?"
        raise BadInput.at(server.shown, message) from error
    except TimeoutError as error:
        raise BadInput.at(server.shown, late) from error
    except (OSError, HTTPException) as error:
        if monotonic() - begun >= MOST_S:
            raise BadInput.at(server.shown, late) from error
        reason = getattr(error, "strerror", None) or type(error).__name__
        message = f"cannot be asked: {reason}; does the server run there?"
        raise BadInput.at(server.shown, message) from error
    finally:
        connection.close()
    if monotonic() - begun >= MOST_S:
        raise BadInput.at(server.shown, late)
    return content


def _connection(server: Server) -> HTTPConnection:
    """Return a connection to a server, not yet made."""
    host = server.address.hostname or ""
    if server.address.scheme == "http":
        return HTTPConnection(host, server.address.port, timeout=MOST_S)
    try:
        trusted = ssl.create_default_context(cafile=server.authority)
    except (OSError, ssl.SSLError) as error:
        raise BadInput.at("--ca-file", "holds no certificates that can be read") from error
    return HTTPSConnection(host, server.address.port, timeout=MOST_S, context=trusted)


@contextmanager
def _ended_after(connected: socket.socket, seconds: float) -> Iterator[None]:
    """End a connection after so long, however slowly its bytes come."""

    def end() -> None:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = Timer(max(0.0, seconds), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check_status(server: Server, response: HTTPResponse) -> None:
    """Raise :class:`BadInput` for an answer that is none."""
    if 300 <= response.status < 400:
        message = "sends on to another address, which is not followed; type that one if it is right"
        raise BadInput.at(server.shown, message)
    if response.status in (401, 403):
        message = f"refuses ({response.status}); is --header 'Authorization: Bearer ...' needed?"
        raise BadInput.at(server.shown, message)
    if response.status != 200:
        message = (
            f"answers {response.status}; does the server show metrics (SGLang: --enable-metrics)?"
        )
        raise BadInput.at(server.shown, message)


def _bounded(server: Server, response: HTTPResponse) -> bytes:
    """Return the content of an answer, piece by piece; raises :class:`BadInput` for too much."""
    pieces = []
    length = 0
    stated = response.length
    while piece := response.read1(PIECE):
        pieces.append(piece)
        length += len(piece)
        if length > MOST_BYTES:
            message = f"answers with more than {MOST_BYTES // 10**6} MB, which no server shows"
            raise BadInput.at(server.shown, message)
    if stated is not None and length < stated:
        message = f"answers with {length:,} of {stated:,} bytes; its connection was cut"
        raise BadInput.at(server.shown, message)
    return b"".join(pieces)
