#!/usr/bin/env python3
"""Writes protocol.json: the bytes of every frame, made from PROTOCOL.md alone and from none of our Rust.

    python3 watcher/wire/tests/vectors/protocol.py > watcher/wire/tests/vectors/protocol.json
    python3 watcher/wire/tests/vectors/protocol.py session    the worked session of PROTOCOL.md

Standard library only. The test protocol.rs holds our writer and our reader to what stands in protocol.json.
"""

import json
import struct
import sys

MOST_U32 = 2**32 - 1
MOST_U64 = 2**64 - 1

# Kinds, signals, modes and event kinds, as the tables of PROTOCOL.md have them.
REPLY, EVENT = 64, 128
READABLE, WRITABLE, PEER_CLOSED, PRIORITY, ERROR = 1, 2, 4, 8, 16
ONCE, EDGE = 0, 1


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def data(raw):
    return struct.pack("<i", len(raw)) + raw + bytes(-len(raw) % 4)


def string(text):
    return data(text.encode())


def escaped(message):
    """The message of a status: bytes below 0x20 and from 0x7E on, and the percent sign, as %XX."""
    plain = lambda byte: 0x20 <= byte < 0x7E and byte != 0x25
    return "".join(chr(byte) if plain(byte) else "%%%02X" % byte for byte in message.encode())


def frame(*values):
    payload = b"".join(values)
    return u32(len(payload)) + payload


# Each entry: the number of the kind, then its fields in order with their types.
REQUESTS = {
    "hello": (1, [("magic", "string"), ("version_lowest", "u32"), ("version_highest", "u32"), ("name", "string")]),
    "watch": (2, [("id", "u64"), ("handle", "u64"), ("token", "u64"), ("signals", "u32"), ("mode", "u32"),
                  ("deadline_ns", "u64")]),
    "change": (3, [("id", "u64"), ("token", "u64"), ("signals", "u32"), ("mode", "u32")]),
    "arm": (4, [("id", "u64"), ("token", "u64"), ("deadline_ns", "u64")]),
    "pause": (5, [("id", "u64")]),
    "unwatch": (6, [("id", "u64")]),
    "close": (7, [("handle", "u64")]),
    "set_timer": (8, [("id", "u64"), ("token", "u64"), ("deadline_ns", "u64"), ("period_ns", "u64")]),
    "cancel_timer": (9, [("id", "u64")]),
    "ping": (10, []),
    "echo": (11, [("data", "data")]),
    "stats": (12, []),
    "sessions": (13, []),
    "watches": (14, [("session", "u64"), ("most", "u32")]),
    "kill": (15, [("session", "u64")]),
    "bye": (16, []),
}

WELCOME = [("version", "u32"), ("session", "u64"), ("frame_bytes", "u32"), ("watches", "u32"), ("timers", "u32"),
           ("descriptors", "u32")]

EVENTS = [("kind", "u32"), ("id", "u64"), ("token", "u64"), ("satisfied", "u32"), ("satisfiable", "u32"),
          ("count", "u32")]

LISTS = {
    "stats": [("name", "string"), ("value", "u64")],
    "sessions": [("session", "u64"), ("name", "string"), ("process", "u32"), ("user", "u32"), ("age_ns", "u64"),
                 ("watches", "u64"), ("timers", "u64"), ("undelivered", "u64"), ("events", "u64"),
                 ("requests", "u64")],
    "watches": [("id", "u64"), ("kind", "string"), ("signals", "u32"), ("mode", "u32"), ("events", "u64")],
}

WRITE = {"u32": u32, "u64": u64, "string": string, "data": data}


def fields(layout, values):
    assert [name for name, _ in layout] == list(values), (layout, values)
    return [WRITE[kind](values[name]) for name, kind in layout]


def request(kind, call, descriptors, /, **values):
    number, layout = REQUESTS[kind]
    return frame(u32(number), u32(call), u32(descriptors), *fields(layout, values))


def reply(call, descriptors, code, message, *body):
    return frame(u32(REPLY), u32(call), u32(descriptors), string(str(code)), string(escaped(message)), *body)


def event(code, /, **values):
    return frame(u32(EVENT), *fields(EVENTS, values), string(str(code)))


def rows(kind, entries):
    return [struct.pack("<i", len(entries))] + [value for entry in entries for value in fields(LISTS[kind], entry)]


def shown(value):
    """As JSON has room for it: bytes in hexadecimal, numbers beyond 32 bits as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [shown(entry) for entry in value]
    if isinstance(value, dict):
        return {name: shown(entry) for name, entry in value.items()}
    return str(value) if isinstance(value, int) and value > MOST_U32 else value


def requests():
    def case(what, kind, call=1, descriptors=0, /, **values):
        return {"name": what, "kind": kind, "call": call, "descriptors": descriptors, "values": shown(values),
                "hex": request(kind, call, descriptors, **values).hex()}

    magic = "handle-watcher"
    yield case("a hello", "hello", magic=magic, version_lowest=1, version_highest=1, name="example")
    yield case("a hello without a name", "hello", magic=magic, version_lowest=1, version_highest=1, name="")
    yield case("a hello of the far future", "hello", MOST_U32, magic=magic, version_lowest=0,
               version_highest=MOST_U32, name="naïve 猫\n\0")
    yield case("a watch that passes its descriptor", "watch", 2, 1, id=1, handle=1, token=0xA1, signals=READABLE,
               mode=ONCE, deadline_ns=0)
    yield case("a watch of a handle that is there", "watch", 3, 0, id=2, handle=1, token=0, signals=READABLE | WRITABLE,
               mode=EDGE, deadline_ns=1_000_000_000)
    yield case("a watch of zeros, paused", "watch", 1, 1, id=0, handle=0, token=0, signals=0, mode=ONCE, deadline_ns=0)
    yield case("a watch of the largest numbers", "watch", MOST_U32, 1, id=MOST_U64, handle=MOST_U64, token=MOST_U64,
               signals=31, mode=EDGE, deadline_ns=MOST_U64)
    for name, bit in [("readable", READABLE), ("writable", WRITABLE), ("peer closed", PEER_CLOSED),
                      ("priority", PRIORITY), ("error", ERROR)]:
        yield case("a watch for " + name, "watch", 9, 0, id=5, handle=6, token=7, signals=bit, mode=ONCE, deadline_ns=8)
    yield case("a change", "change", 4, id=1, token=2, signals=WRITABLE, mode=EDGE)
    yield case("a change that wants no reply and pauses", "change", 0, id=MOST_U64, token=MOST_U64, signals=0, mode=ONCE)
    yield case("an arm", "arm", 5, id=1, token=3, deadline_ns=0)
    yield case("an arm that wants no reply", "arm", 0, id=2**32, token=2**63, deadline_ns=MOST_U64)
    yield case("a pause", "pause", 6, id=1)
    yield case("a pause that wants no reply", "pause", 0, id=MOST_U64)
    yield case("an unwatch", "unwatch", 7, id=1)
    yield case("an unwatch that wants no reply", "unwatch", 0, id=0)
    yield case("a close", "close", 8, handle=1)
    yield case("a close of the largest number", "close", 8, handle=MOST_U64)
    yield case("a timer", "set_timer", 9, id=1, token=4, deadline_ns=5_000_000_000, period_ns=0)
    yield case("a periodic timer of the largest numbers", "set_timer", 9, id=MOST_U64, token=MOST_U64,
               deadline_ns=MOST_U64, period_ns=MOST_U64)
    yield case("a cancel", "cancel_timer", 10, id=1)
    yield case("a cancel that wants no reply", "cancel_timer", 0, id=2)
    yield case("a ping", "ping", 11)
    yield case("an echo of nothing", "echo", 12, data=b"")
    for length in [1, 2, 3, 4, 1024]:
        yield case("an echo of %d" % length, "echo", 12, data=bytes(index % 256 for index in range(length)))
    yield case("stats", "stats", 13)
    yield case("sessions", "sessions", 14)
    yield case("watches of the own session", "watches", 15, session=0, most=10)
    yield case("watches of the largest numbers", "watches", 15, session=MOST_U64, most=MOST_U32)
    yield case("a kill", "kill", 16, session=7)
    yield case("a bye", "bye", 17)
    yield case("a bye that wants no reply", "bye", 0)


def replies():
    def case(name, call, code, message="", descriptors=0, body=None, values=None, raw=()):
        return {"name": name, "call": call, "descriptors": descriptors, "code": code, "message": message, "body": body,
                "values": shown(values), "hex": reply(call, descriptors, code, message, *raw).hex()}

    def listed(name, kind, entries):
        return case(name, 3, 0, body=kind, values=entries, raw=rows(kind, entries))

    yield case("a call went well", 1, 0)
    yield case("the largest call number", MOST_U32, 0)
    for code in range(1, 17):
        yield case("code %d" % code, 2, code, "code %d" % code)
    yield case("the session ends", 0, 3, "the frame is too long: 50% of café\n\x7e")
    yield case("a failure without words", 2, 13)
    usual = {"version": 1, "session": 1, "frame_bytes": 262144, "watches": 65536, "timers": 65536, "descriptors": 1024}
    largest = {name: MOST_U64 if name == "session" else MOST_U32 for name in usual}
    for name, welcome in [("a welcome", usual), ("a welcome of the largest numbers", largest)]:
        yield case(name, 1, 0, descriptors=1, body="welcome", values=welcome, raw=fields(WELCOME, welcome))
    for length in [0, 1, 5, 1024]:
        echoed = bytes(255 - index % 256 for index in range(length))
        yield case("an echo of %d" % length, 4, 0, body="echo", values={"data": echoed}, raw=[data(echoed)])
    yield listed("no counters", "stats", [])
    yield listed("counters", "stats", [{"name": "turns", "value": 0}, {"name": "", "value": MOST_U64},
                                       {"name": "sessions_now", "value": 2**32}])
    yield listed("no sessions", "sessions", [])
    yield listed("sessions", "sessions", [
        {"session": 1, "name": "", "process": 0, "user": 0, "age_ns": 0, "watches": 0, "timers": 0, "undelivered": 0,
         "events": 0, "requests": 0},
        {"session": 2, "name": "naïve 猫", "process": 4194304, "user": 1000, "age_ns": 2**40, "watches": 1, "timers": 2,
         "undelivered": 3, "events": 4, "requests": 5},
        {"session": MOST_U64, "name": "abc", "process": MOST_U32, "user": MOST_U32, "age_ns": MOST_U64,
         "watches": MOST_U64, "timers": MOST_U64, "undelivered": MOST_U64, "events": MOST_U64, "requests": MOST_U64}])
    yield listed("no watches", "watches", [])
    yield listed("watches", "watches", [
        {"id": 0, "kind": "socket", "signals": READABLE, "mode": ONCE, "events": 0},
        {"id": MOST_U64, "kind": "pidfd", "signals": 31, "mode": EDGE, "events": MOST_U64}])


def events():
    def case(what, code=0, /, **values):
        return {"name": what, "code": code, "values": shown(values), "hex": event(code, **values).hex()}

    yield case("ready", kind=1, id=1, token=0xA1, satisfied=READABLE, satisfiable=READABLE | WRITABLE, count=1)
    yield case("ready, with everything", kind=1, id=MOST_U64, token=MOST_U64, satisfied=31, satisfiable=31,
               count=MOST_U32)
    yield case("unsatisfiable", kind=2, id=2, token=0, satisfied=0, satisfiable=0, count=1)
    yield case("deadline", kind=3, id=3, token=5, satisfied=0, satisfiable=READABLE | WRITABLE, count=1)
    yield case("a timer, four periods late", kind=4, id=4, token=6, satisfied=0, satisfiable=0, count=4)
    yield case("wake", kind=5, id=0, token=0, satisfied=0, satisfiable=0, count=2)
    yield case("reply", kind=6, id=0, token=0, satisfied=0, satisfiable=0, count=1)
    for code in range(1, 17):
        yield case("ended with %d" % code, code, kind=7, id=5, token=7, satisfied=0, satisfiable=0, count=1)


def session():
    """The worked session: who sends what, in order, with a word beside every value."""
    def head(kind, call, descriptors, *values):
        number = REQUESTS[kind][0]
        name = "".join(word.capitalize() for word in kind.split("_"))
        return [(u32(number), "kind %d, %s" % (number, name)), (u32(call), "call %d" % call),
                (u32(descriptors), "descriptors %d" % descriptors), *values]

    def good(call, descriptors=0, *body):
        return [(u32(REPLY), "kind 64, Reply"), (u32(call), "call %d" % call),
                (u32(descriptors), "descriptors %d" % descriptors), (string("0"), 'code "0", OK'),
                (string(""), "no message"), *body]

    return [
        ("client", "calls", "Hello", head(
            "hello", 1, 0, (string("handle-watcher"), "magic"), (u32(1), "lowest version 1"),
            (u32(1), "highest version 1"), (string("demo"), 'name "demo"'))),
        ("service", "calls", "Welcome; with the first byte comes the event socket", good(
            1, 1, (u32(1), "version 1"), (u64(1), "session 1"), (u32(262144), "frame_bytes 262 144"),
            (u32(65536), "watches 65 536"), (u32(65536), "timers 65 536"), (u32(1024), "descriptors 1024"))),
        ("client", "calls", "Watch; with the first byte goes the reading end of a pipe", head(
            "watch", 2, 1, (u64(7), "id 7"), (u64(3), "handle 3"), (u64(0xA1), "token 0xA1"),
            (u32(READABLE), "signals READABLE"), (u32(ONCE), "mode Once"), (u64(0), "no deadline"))),
        ("service", "calls", "the watch is made", good(2)),
        ("service", "events", "somebody has written to the pipe", [
            (u32(EVENT), "kind 128, Event"), (u32(1), "event kind 1, Ready"), (u64(7), "id 7"), (u64(0xA1), "token 0xA1"),
            (u32(READABLE), "satisfied READABLE"), (u32(31), "satisfiable all five"),
            (u32(1), "count 1"), (string("0"), 'code "0", OK')]),
        ("client", "calls", "the client has read the pipe: Arm, and no reply is wanted", head(
            "arm", 0, 0, (u64(7), "id 7"), (u64(0xA2), "token 0xA2"), (u64(0), "no deadline"))),
        ("client", "calls", "Unwatch", head("unwatch", 3, 0, (u64(7), "id 7"))),
        ("service", "calls", "the watch is over, and so is the handle, whose last watch it was", good(3)),
        ("client", "calls", "Bye", head("bye", 4, 0)),
        ("service", "calls", "and both sockets are closed", good(4)),
    ]


def spaced(raw):
    return " ".join("%02x" % byte for byte in raw)


def print_session():
    for sender, socket, what, values in session():
        print("```hex %s %s" % (sender, socket))
        print("# %s" % what)
        size = sum(len(raw) for raw, _ in values)
        for raw, word in [(u32(size), "payload size %d" % size)] + values:
            for start in range(0, len(raw), 8):
                row = spaced(raw[start:start + 8])
                print(("%-25s %s" % (row, word if start == 0 else "")).rstrip())
        print("```\n")


def main():
    if sys.argv[1:] == ["session"]:
        print_session()
        return
    vectors = {
        "about": "version 1 of the protocol; made by protocol.py from PROTOCOL.md; numbers beyond 32 bits are text, bytes "
                 "are hexadecimal",
        "version": 1,
        "requests": list(requests()),
        "replies": list(replies()),
        "events": list(events()),
        "session": [{"sender": sender, "socket": socket, "what": what, "hex": frame(*(raw for raw, _ in values)).hex()}
                    for sender, socket, what, values in session()],
    }
    json.dump(vectors, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
