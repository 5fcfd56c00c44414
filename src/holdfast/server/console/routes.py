"""Routes of the console: its page, its files, login and logout."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import MediaType, Request, Response, get, post
from litestar.params import PathParameter

from ...errors import HoldfastError, NoRoute
from ..auth.callers import LocalTokenAuth, NoAuth, RequestCredentials, SharedSecret
from ..auth.logins import LASTS, cookie_name
from ..http.context import SERVICE
from ..http.headers import base_of
from ..service import Service
from ..settings import KEYS
from .assets import assets, page

PUBLIC = {"public": True}
PAGE = {**PUBLIC, "slash": True}
MODULES = {"session": "session.js", "inbox": "inbox.js", "store": "operations.js"}
PLACES = ["/inbox", "/store", "/sessions", "/sessions/{session_id:str}"]
TOKEN = "token"  # noqa: S105 - the name of a parameter
# The token may not leave this machine by a `Referer` header.
PRIVATE = {"referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin"}
FORGET = {"clear-site-data": '"cache"'}
Name = Annotated[str, PathParameter(min_length=1, max_length=200)]


@get("/", opt=PAGE, include_in_schema=False)
async def console(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the page. With the local token in the query, log in first, and redirect to the address
    without the token."""
    token = request.query_params.get(TOKEN)
    if token is None:
        return _page(request)
    headers = {"location": f"{base_of(request.scope)}/console", **PRIVATE}
    if isinstance(_service(request).settings.auth, LocalTokenAuth):
        headers |= await _cookie(request, token)
    return Response(b"", status_code=303, headers=headers)


@get(PLACES, opt=PAGE, include_in_schema=False, sync_to_thread=False)
def place(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the page. Its script reads the path, and shows that session or list."""
    named = request.scope["path"].removeprefix(base_of(request.scope)).split("/")
    first = "session" if "session_id" in request.path_params else named[2]
    return _page(request, MODULES.get(first, "sessions.js"))


def _page(request: Request[Any, Any, Any], first: str = "sessions.js") -> Response[bytes]:
    raw = request.scope.get("raw_path") or b""
    if raw.endswith(b"/"):
        return _without_slash(request, raw)
    service = _service(request)
    text, policy = page(base_of(request.scope), _auth(service), service.version, first)
    headers = {"content-security-policy": policy, **PRIVATE}
    return Response(text.encode(), media_type=MediaType.HTML, headers=headers)


def _without_slash(request: Request[Any, Any, Any], raw: bytes) -> Response[bytes]:
    """Redirect to the address without the slash at its end, relative to it."""
    last = raw.rstrip(b"/").rpartition(b"/")[2].decode("latin-1")
    query = request.scope["query_string"].decode("latin-1")
    location = f"../{last}{query and '?'}{query}"
    return Response(b"", status_code=308, headers={"location": location, **PRIVATE})


async def _cookie(request: Request[Any, Any, Any], token: str) -> dict[str, str]:
    """Return the header that logs in with the local token, or none if the token is wrong."""
    shown = _credentials(request, authorization=f"Bearer {token}")
    try:
        caller = await _service(request).authentication.caller(shown)
    except HoldfastError:
        return {}  # the page asks for the token
    value = await _service(request).authentication.log_in(shown, caller)
    return {"set-cookie": _set(request, value or "")}


@get("/static/{name:path}", opt=PUBLIC, include_in_schema=False, sync_to_thread=False)
def static(request: Request[Any, Any, Any], name: Name) -> Response[bytes]:
    """Return a file of the console."""
    asset = assets().get(name.lstrip("/"))
    if asset is None:
        raise NoRoute(path=request.scope["path"])
    headers = {"etag": asset.tag, "cache-control": "no-cache", **SAME}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(b"", status_code=304, headers=headers)
    return Response(asset.data, media_type=asset.kind, headers=headers)


SAME = {"cross-origin-resource-policy": "same-origin"}


@post("/login", include_in_schema=False, status_code=204)
async def login(request: Request[Any, Any, Any]) -> Response[None]:
    """Log in: the token of this request becomes a cookie."""
    authentication = _service(request).authentication
    value = await authentication.log_in(_credentials(request), request.scope["state"]["caller"])
    headers = {} if value is None else {"set-cookie": _set(request, value)}
    return Response(None, status_code=204, headers=headers)


@post("/logout", include_in_schema=False, status_code=204)
async def logout(request: Request[Any, Any, Any]) -> Response[None]:
    """Log out: no copy of the cookie is accepted any more."""
    await _service(request).authentication.log_out(_credentials(request))
    return Response(None, status_code=204, headers={"set-cookie": _set(request, "", 0), **FORGET})


def _set(request: Request[Any, Any, Any], value: str, lasts: int = LASTS) -> str:
    """Return a `Set-Cookie` header. Behind a proxy, only the origin shows that TLS is used."""
    tls = request.scope["scheme"] == "https"
    tls = tls or request.headers.get("origin", "").startswith("https://")
    path, secure = base_of(request.scope) or "/", "; Secure" if tls else ""
    name = cookie_name(request.headers)
    return f"{name}={value}; Max-Age={lasts}; Path={path}; HttpOnly; SameSite=Lax{secure}"


def _credentials(request: Request[Any, Any, Any], **more: str) -> RequestCredentials:
    headers = {name.lower(): value for name, value in request.headers.items()}
    client = request.scope.get("client")
    return RequestCredentials(
        method=request.method,
        path=request.scope["path"],
        headers={**headers, **more},
        address=client[0] if client else None,
    )


def _service(request: Request[Any, Any, Any]) -> Service:
    service: Service = request.app.state[SERVICE]
    return service


def _auth(service: Service) -> str:
    """Return the kind of credential with which users log in, for the login form."""
    auth = service.settings.auth
    if auth == KEYS:
        return "keys"
    kinds = {LocalTokenAuth: "local", SharedSecret: "secret", NoAuth: "none"}
    return kinds.get(type(auth), "custom")


HANDLERS: list[Any] = [console, place, static, login, logout]
