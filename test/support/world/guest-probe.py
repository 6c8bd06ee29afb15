"""Runs the test's probes inside a guest, all at once; prints the results as JSON, in the same order."""
import errno, json, os, select, socket, ssl, struct, sys, threading, time

WAIT_S = 2.0
# Seconds to wait for the first bytes of a peer that has accepted: a peer that refuses closes the connection itself.
FIRST_S = 10.0


def named(error):
    if isinstance(error, socket.timeout):
        return "TIMEOUT"
    return errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)


def dialled(probe):
    peer = socket.socket()
    peer.settimeout(probe.get("wait", WAIT_S))
    peer.connect((probe["host"], probe["port"]))
    return peer


def read_until_quiet(peer, wait=None):
    """Reads until the peer closes, 64 KiB have arrived, or no more arrive; returns the bytes and how it ended."""
    got, end = b"", time.monotonic() + (wait or FIRST_S)
    while len(got) < 65536:
        peer.settimeout(max(0.01, end - time.monotonic()))
        try:
            chunk = peer.recv(65536)
        except socket.timeout:
            return got, "open"
        except OSError as error:
            return got, named(error)
        if not chunk:
            return got, "closed"
        if not got and wait is None:
            end = time.monotonic() + WAIT_S
        got += chunk
    return got, "open"


def tcp(probe):
    """Sends chunks (hex) over TCP, with pauses between them, and reads the answer."""
    began = time.monotonic()
    peer = dialled(probe)
    chunks = [bytes.fromhex(chunk) for chunk in probe.get("chunks", [])]
    for chunk in chunks + chunks[-1:] * probe.get("again", 0):
        try:
            peer.sendall(chunk)
        except OSError:
            break
        time.sleep(probe.get("gap", 0))
    got, end = read_until_quiet(peer, probe.get("wait"))
    peer.close()
    return {"got": got.decode("latin1"), "end": end, "ms": int((time.monotonic() - began) * 1000)}


def udp(probe):
    peer = socket.socket(type=socket.SOCK_DGRAM)
    peer.settimeout(probe.get("wait", WAIT_S))
    peer.connect((probe["host"], probe["port"]))
    peer.send(bytes.fromhex(probe["chunks"][0]))
    return {"got": peer.recv(65536).decode("latin1")}


def tls(probe):
    """Makes a TLS handshake with this server name (null: none), then one HTTP request."""
    context = ssl.create_default_context(cafile=probe["ca"])
    context.check_hostname = False
    if not probe.get("verify"):
        context.verify_mode = ssl.CERT_NONE
    peer = dialled(probe)
    peer.settimeout(probe.get("wait", FIRST_S))
    peer = context.wrap_socket(peer, server_hostname=probe.get("name"))
    host = probe.get("header", probe.get("name") or probe["host"])
    peer.sendall(f"GET {probe.get('path', '/')} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    got, end = read_until_quiet(peer, probe.get("wait"))
    return {"got": got.decode("latin1"), "end": end}


def question(name, kind, number):
    labels = b"".join(bytes([len(label)]) + label for label in name.encode().split(b".") if label)
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def skip_name(message, at):
    while message[at]:
        if message[at] >= 192:
            return at + 2
        at += message[at] + 1
    return at + 1


def read_answer(message):
    count = struct.unpack(">H", message[6:8])[0]
    at = skip_name(message, 12) + 4
    addresses, types, ttls = [], [], []
    for _ in range(count):
        at = skip_name(message, at)
        kind, _, ttl, length = struct.unpack(">HHIH", message[at : at + 10])
        data = message[at + 10 : at + 10 + length]
        at += 10 + length
        types.append(kind)
        ttls.append(ttl)
        if kind == 1:
            addresses.append(socket.inet_ntoa(data))
    return {"rcode": message[3] & 15, "a": addresses, "types": types, "ttls": ttls}


def dns(probe):
    server = probe.get("server", "10.200.0.1")
    message = question(probe["name"], probe.get("type", 1), probe.get("id", 4711))
    wait = probe.get("wait", 6)
    if probe.get("tcp"):
        peer = dialled({"host": server, "port": 53, "wait": wait})
        peer.sendall(struct.pack(">H", len(message)) + message)
        answer = peer.recv(65536)[2:]
    else:
        peer = socket.socket(type=socket.SOCK_DGRAM)
        peer.settimeout(wait)
        peer.connect((server, 53))
        began = time.monotonic()
        peer.send(message)
        answer = peer.recv(65536)
    return read_answer(answer)


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ping(probe):
    peer = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    body = struct.pack(">BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, 1) + b"ping"
    peer.sendto(body[:2] + struct.pack(">H", checksum(body)) + body[4:], (probe["host"], 0))
    end = time.monotonic() + probe.get("wait", WAIT_S)
    while (left := end - time.monotonic()) > 0 and select.select([peer], [], [], left)[0]:
        packet, (sender, _) = peer.recvfrom(2048)
        if sender == probe["host"] and packet[20] == 0:
            return {"got": "answered"}
    return {"error": "TIMEOUT"}


def ip(probe):
    """Sends a packet of any IP protocol, by number."""
    peer = socket.socket(socket.AF_INET, socket.SOCK_RAW, probe["protocol"])
    peer.sendto(b"x" * 20, (probe["host"], 0))
    return {"got": "sent"}


def frame(probe):
    """Sends raw Ethernet frames (hex)."""
    peer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    peer.bind(("eth0", 0))
    for chunk in probe["chunks"]:
        peer.send(bytes.fromhex(chunk))
    return {"got": "sent"}


def get(probe):
    """Requests a URL with urllib, as Python programs do."""
    import urllib.error, urllib.request

    context = ssl.create_default_context(cafile=probe["ca"])
    try:
        with urllib.request.urlopen(probe["url"], timeout=probe.get("wait", 10), context=context) as answer:
            return {"status": answer.status, "got": answer.read().decode("latin1")}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "got": error.read().decode("latin1")}


def look_up(probe):
    return {"a": sorted({found[4][0] for found in socket.getaddrinfo(probe["name"], 80, socket.AF_INET)})}


OPERATIONS = dict(tcp=tcp, udp=udp, tls=tls, dns=dns, ping=ping, ip=ip, frame=frame, get=get, look_up=look_up)


def run(probe, results, at):
    try:
        results[at] = OPERATIONS[probe["op"]](probe)
    except Exception as error:
        results[at] = {"error": named(error), "why": str(error)[:200]}


def main(probes):
    results = [None] * len(probes)
    threads = [threading.Thread(target=run, args=(probe, results, at)) for at, probe in enumerate(probes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(results))


main(json.loads(sys.argv[1]))
