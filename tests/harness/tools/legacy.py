"""An MCP server of the older protocol, which keeps sessions, and can forget them."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

TOOL = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


class Legacy:
    """Listens in a thread; `calls` are those carried out, `begun` counts the sessions."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.begun = 0
        self.session: str | None = None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._http.server_port}/mcp"

    def __enter__(self) -> Legacy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def forget(self) -> None:
        self.session = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        method = request["method"]
        if method == "initialize":
            self.begun += 1
            self.session = f"session-{self.begun}"
            about = {"name": "legacy", "version": "1"}
            version = request["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        if method == "tools/list":
            return {"tools": [TOOL]}
        text = request["params"]["arguments"]["text"]
        self.calls.append(text)
        return {"content": [{"type": "text", "text": text}]}

    def _handler(legacy) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                method = request["method"]
                said = self.headers.get("Mcp-Session-Id")
                if method == "server/discover":
                    self.reply(200, {"error": {"code": -32601, "message": "unknown"}}, request)
                elif method != "initialize" and said != legacy.session:
                    self.reply(404)
                elif "id" not in request:
                    self.reply(202)
                else:
                    self.reply(200, {"result": legacy.answer(request)}, request)

            def do_GET(self) -> None:
                self.reply(405)

            def do_DELETE(self) -> None:
                self.reply(204)

            def reply(
                self, status: int, answer: Any = None, request: dict[str, Any] | None = None
            ) -> None:
                body = b""
                if request is not None:
                    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if legacy.session:
                    self.send_header("Mcp-Session-Id", legacy.session)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        return Handler
