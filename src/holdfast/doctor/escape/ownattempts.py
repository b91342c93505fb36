"""Attempts on limits, on Holdfast's own keys and sockets, and with the network on. Pure module.

The resource bombs are bounded, so that they do no harm where no sandbox holds them.
"""

from typing import Final

from holdfast.doctor.escape.attempt import LIMITED, NOTHING, REFUSED, UNREACHED, UNSEEN, Attempt, Guarantee
from holdfast.sandbox.limits import Limits

_LOOKED_AT_S: Final = 4  # a limit that is enforced by polling is checked several times a second

_LIMITS: Final = (
    (
        "limit-memory",
        "use four times the memory that is allowed",
        Limits(memory=64 << 20),
        f"import time\nkept = [bytearray(b'x') * (4 << 20) for _ in range(64)]\ntime.sleep({_LOOKED_AT_S})",
        LIMITED,
    ),
    (
        "limit-memory-of-child",
        "the same in a child, whose parent goes on",
        Limits(memory=64 << 20),
        "import time\n"
        "if os.fork() == 0:\n"
        "    kept = [bytearray(b'x') * (4 << 20) for _ in range(64)]\n"
        f"    time.sleep({_LOOKED_AT_S}); os._exit(0)\n"
        "_, how = os.wait()\n"
        "contained_unless(how == 0, 'the kernel ended it')",
        LIMITED | NOTHING,
    ),
    (
        "limit-processes",
        "start many more processes than are allowed",
        Limits(pids=40),
        "import time\nmade = []\n"
        "try:\n"
        "    for _ in range(150):\n"
        "        child = os.fork()\n"
        "        if child == 0: time.sleep(20); os._exit(0)\n"
        "        made.append(child)\n"
        f"    time.sleep({_LOOKED_AT_S})\n"
        "finally:\n"
        "    for child in made: os.kill(child, signal.SIGKILL)",
        LIMITED | {"EAGAIN"},
    ),
    (
        "limit-files",
        "open more files than are allowed",
        Limits(open_files=128),
        "kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(400)]",
        LIMITED | {"EMFILE"},
    ),
    (
        "limit-files-lifted",
        "allow ourselves more open files",
        Limits(open_files=128),
        "import struct\ncall('prlimit64', 0, 7, ctypes.create_string_buffer(struct.pack('QQ', 256, 256)), 0)",
        LIMITED | REFUSED,
    ),
    (
        "limit-disk",
        "write a larger file than is allowed",
        Limits(disk=8 << 20),
        "with open('sub/filler', 'wb', buffering=0) as file:\n"
        "    for _ in range(24): file.write(bytes(1 << 20))",
        LIMITED | {"EFBIG", "SIGXFSZ"},
    ),
    (
        "limit-time",
        "run longer than is allowed, deaf to the first request to end",
        Limits(timeout_s=0.5),
        "import time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(12)",
        LIMITED,
    ),
    (
        "limit-cpu",
        "use two processors where one is allowed",
        Limits(cpus=1.0),
        "import time\n"
        "if os.cpu_count() == 1: raise Skip('there is one processor')\n"
        "begun, ends = time.monotonic(), []\n"
        "for _ in range(2):\n"
        "    ours, theirs = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        while time.monotonic() < begun + 0.6: pass\n"
        "        os.write(theirs, repr(time.process_time()).encode()); os._exit(0)\n"
        "    ends.append(ours)\n"
        "used = sum(float(os.read(end, 64)) for end in ends)\n"
        "contained_unless(used > 1.35 * (time.monotonic() - begun), f'{used:.2f} s')",
        LIMITED | NOTHING,
    ),
)

_HOMES: Final = (
    ("home-listed", "list a directory of Holdfast's own", "print(os.listdir(scene.holdfast))"),
    ("home-key", "read the key of its daemons", "show(scene.holdfast + '/access.key')"),
    (
        "home-key-by-link",
        "read it through a link",
        "os.symlink(scene.holdfast, 'sub/to-home'); show('sub/to-home/access.key')",
    ),
    (
        "home-key-linked",
        "give the key another name",
        "os.link(scene.holdfast + '/access.key', 'sub/key'); show('sub/key')",
    ),
    ("home-written", "write into it", "create(scene.holdfast + '/access.key.new')"),
    (
        "home-socket",
        "ask its supervisor",
        "os.chdir(scene.holdfast); socket.socket(1).connect('supervisor.sock')",
    ),
    (
        "home-socket-by-path",
        "ask its supervisor by the whole path",
        "socket.socket(1).connect(scene.supervisor)",
    ),
)

# The network is one grant and the host's unix sockets are another: these have the first.
_ONLINE: Final = (
    ("online-path", "connect to a unix socket of the host", "socket.socket(1).connect(scene.stream)"),
    (
        "online-abstract",
        "connect to an abstract unix socket of the host",
        "socket.socket(1).connect('\\0' + scene.abstract)",
    ),
    (
        "online-datagram",
        "send to a datagram socket of the host",
        "socket.socket(1, socket.SOCK_DGRAM).sendto(b'x', scene.datagram)",
    ),
    (
        "online-link",
        "connect to a unix socket of the host through a link",
        "os.symlink(scene.stream, 'to-stream'); socket.socket(1).connect('to-stream')",
    ),
    ("online-home", "ask Holdfast's supervisor", "socket.socket(1).connect(scene.supervisor)"),
)

OWN: Final = (
    *(
        Attempt(id_, Guarantee.LIMITS, title, script, expect, limits=limits)
        for id_, title, limits, script, expect in _LIMITS
    ),
    *(
        Attempt(id_, Guarantee.HOMES, title, script, UNSEEN | UNREACHED | {"EROFS", "EXDEV"}, hides=True)
        for id_, title, script in _HOMES
    ),
    *(
        Attempt(
            id_,
            Guarantee.SOCKETS,
            f"{title}, with the network on",
            script,
            UNREACHED | UNSEEN,
            online=True,
            hides=id_ == "online-home",
        )
        for id_, title, script in _ONLINE
    ),
)
