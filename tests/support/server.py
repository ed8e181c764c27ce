"""A server of files on this machine, for downloads."""

import http.server
import threading


class Server:
    """Serves bytes on this machine, with ranges, and with faults.

    Attributes:
        files: dict from path to bytes.
        pages: paths that get a web page instead.
        cut: dict from path to a number of bytes after which the connection breaks, once.
        ranges: whether it knows ranges.
        requests: (method, path, range) of each request.
    """

    def __init__(self):
        self.files, self.pages, self.cut, self.ranges, self.requests = {}, set(), {}, True, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self._answer(False)

            def do_GET(self):
                self._answer(True)

            def _answer(self, with_body):
                asked = self.headers.get("Range")
                outer.requests.append((self.command, self.path, asked))
                if self.path in outer.pages:
                    return self._send(200, b"<!DOCTYPE html><html>Sorry</html>", with_body, "text/html; charset=utf-8")
                if self.path not in outer.files:
                    return self.send_error(404)
                body, code = outer.files[self.path], 200
                if asked and outer.ranges:
                    start = int(asked.removeprefix("bytes=").rstrip("-"))
                    if start >= len(body):
                        return self.send_error(416)
                    body, code = body[start:], 206
                return self._send(code, body, with_body, "application/gzip")

            def _send(self, code, body, with_body, kind):
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", kind)
                self.end_headers()
                if with_body:
                    self.wfile.write(body[: outer.cut.pop(self.path, len(body))])

            def log_message(self, *arguments):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
