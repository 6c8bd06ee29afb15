"""
Measures a network from inside: orders as JSON in the first argument, one list of milliseconds each as JSON on standard
output. The same program runs in guests and in namespaces, so that what it costs itself is in floors and rows alike.
"""
import json, socket, struct, sys, time

LIMIT_S = 60
BLOCK = b"x" * 65536


def dialled(order):
    peer = socket.create_connection((order["host"], order["port"]), LIMIT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def read_until(peer, end):
    got = b""
    while end not in got:
        chunk = peer.recv(65536)
        if not chunk:
            raise OSError(f"closed after {got[:80]!r}")
        got += chunk
    return got


def greeting(order):
    """The first bytes of a client: a TLS greeting, or the head of a request."""
    if "hello" in order:
        return bytes.fromhex(order["hello"])
    return f"GET / HTTP/1.1\r\nHost: {order['name']}\r\n\r\n".encode()


def connection(order):
    """A new connection, to the first byte of its answer."""
    peer = dialled(order)
    peer.sendall(greeting(order))
    if not peer.recv(1):
        raise OSError("closed without an answer")
    return peer


def download(order):
    """After a TLS greeting the bytes are plain: no cryptography is measured."""
    peer = dialled(order)
    peer.sendall(greeting(order))
    read_until(peer, b"!")
    began = time.monotonic()
    peer.sendall(f"down {order['bytes']}\n".encode())
    left = order["bytes"]
    while left > 0:
        left -= len(peer.recv(65536))
    return time.monotonic() - began


def upload(order):
    peer = dialled(order)
    peer.sendall(greeting(order))
    read_until(peer, b"!")
    return sent(peer, f"up {order['bytes']}\n".encode(), order["bytes"], b"!")


def post(order):
    """An upload as one HTTP request."""
    peer = dialled(order)
    head = f"POST /upload HTTP/1.1\r\nHost: {order['name']}\r\nContent-Length: {order['bytes']}\r\n\r\n"
    return sent(peer, head.encode(), order["bytes"], b"taken")


def sent(peer, head, count, answer):
    """Until the server confirms the last byte."""
    began = time.monotonic()
    peer.sendall(head)
    while count > 0:
        peer.sendall(BLOCK[:count])
        count -= min(count, len(BLOCK))
    read_until(peer, answer)
    return time.monotonic() - began


def question(name, number):
    labels = b"".join(bytes([len(label)]) + label for label in name.encode().split(b"."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


def dns(order, number):
    """The same name each time, or a new name each time where the name has a star."""
    name = order["name"].replace("*", f"{order.get('salt', '')}{number}")
    peer = socket.socket(type=socket.SOCK_DGRAM)
    peer.settimeout(LIMIT_S)
    peer.connect((order["host"], order["port"]))
    peer.send(question(name, number))
    answer = peer.recv(4096)
    if answer[3] & 15 or answer[6:8] == b"\0\0":
        raise OSError(f"{name} has no address: code {answer[3] & 15}")


def spent(work, *args):
    began = time.monotonic()
    work(*args)
    return time.monotonic() - began


def run(order):
    """The first connection warms up."""
    rounds = range(order.get("n", 1) + 1)
    op = order["op"]
    if op == "connection":
        seconds = [spent(connection, order) for _ in rounds]
    elif op == "dns":
        seconds = [spent(dns, order, number) for number in rounds]
    else:
        seconds = [{"download": download, "upload": upload, "post": post}[op](order) for _ in rounds]
    return [second * 1000 for second in seconds[1:]]


print(json.dumps([run(order) for order in json.loads(sys.argv[1])]))
