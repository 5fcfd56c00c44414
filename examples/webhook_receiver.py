"""Receives webhooks of Holdfast, checks them, and handles each once."""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
PORT = int(os.environ.get("PORT", "8080"))
TOLERANCE = 300  # seconds that a delivery may be old
seen: set[str] = set()  # keep it in your database, in the transaction of what you do


def is_genuine(id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    signed = f"{id}.{timestamp}.".encode() + body
    made = b"v1," + base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest())
    return any(hmac.compare_digest(made, one.encode()) for one in signatures.split(" "))


class Hooks(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), 1 << 20))
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        id, timestamp, signatures = (self.headers.get(name, "") for name in names)
        genuine = is_genuine(id, timestamp, signatures, body)
        if genuine and id not in seen:
            said = json.loads(body)
            print(said["type"], said["data"].get("session"), said["data"].get("seq"), flush=True)
            seen.add(id)
        self.send_response(204 if genuine else 401)
        self.send_header("content-length", "0")
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Hooks).serve_forever()
