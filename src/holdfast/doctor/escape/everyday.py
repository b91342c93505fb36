"""Ordinary work that must be possible inside a sandbox. Pure module."""

from typing import Final

from holdfast.doctor.escape.attempt import WORKS, Attempt, Guarantee

_POOL: Final = """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        print(sum(pool.map(abs, range(-10, 0))))
"""

_NODE: Final = """
const server = require("http").createServer((_, reply) => reply.end("served"));
server.listen(0, "127.0.0.1", async () => {
  const reply = await fetch("http://127.0.0.1:" + server.address().port);
  console.log(await reply.text());
  server.close();
});
"""


_EVERYDAY: Final = (
    ("files", "make, read, rename and remove files and directories",
     "os.makedirs('a/b'); p = pathlib.Path('a/b/f'); p.write_text('x'); p.rename('a/g')\n"
     "assert pathlib.Path('a/g').read_text() == 'x'; shutil.rmtree('a')"),
    ("many-files", "unpack and remove a tree, as npm and pip do",
     "for i in range(20):\n"
     "    os.makedirs(f'node_modules/p{i}/lib')\n"
     "    for j in range(10): pathlib.Path(f'node_modules/p{i}/lib/{j}.js').write_text('x')\n"
     "os.makedirs('node_modules/.bin'); os.symlink('../p1/lib/1.js', 'node_modules/.bin/p1')\n"
     "os.rename('node_modules', '.old'); shutil.copytree('.old', 'node_modules', symlinks=True)\n"
     "shutil.rmtree('.old'); assert os.path.exists('node_modules/.bin/p1')"),
    ("hard-links", "link and rename across directories",
     "os.mkdir('a'); create('f'); os.link('f', 'a/g'); os.rename('a/g', 'sub/h')\n"
     "assert os.stat('f').st_nlink == 2"),
    ("beside-protected", "rename across directories that hold something protected",
     "create('conf/f'); os.rename('conf/f', 'secrets/f'); os.link('secrets/f', 'f'); os.unlink('secrets/f')"),
    ("links", "make and follow links",
     "os.symlink('sub', 'l'); create('l/f'); assert os.path.exists('sub/f')"),
    ("modes", "change permissions and times", "create('f'); os.chmod('f', 0o755); os.utime('f', (1, 1))"),
    ("nameless", "name a file that had none",
     "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY)\n"
     "call('linkat', HERE, f'/proc/self/fd/{fd}'.encode(), HERE, b'named', 0x400)"),
    ("large-file", "write, map and truncate a large file",
     "f = open('large', 'w+b'); f.write(bytes(1 << 20) * 32); f.flush()\n"
     "m = mmap.mmap(f.fileno(), 0); m[5] = 1; m.flush(); m.close(); f.truncate(1 << 33)\n"
     "assert os.stat('large').st_size == 1 << 33"),
    ("locks", "lock files", "import fcntl\nf = open('l', 'w'); fcntl.flock(f, 2); fcntl.lockf(f, 2)"),
    ("temporary", "use temporary files and directories",
     "import tempfile\n"
     "with tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile() as f:\n"
     "    assert d.startswith(scene.tmp); create(d + '/x'); f.write(b'x')"),
    ("reading", "read what is outside and not denied",
     "assert (outside / 'file').read_text() == 'outside'; os.listdir('/etc'); (git / 'config').read_text()"),
    ("git", "make a repository and commit",
     "need('git'); pathlib.Path('repo').mkdir(); create('repo/f')\n"
     "for words in ('init -q', 'add f', 'commit -q -m x', 'gc -q', 'log --oneline'):\n"
     "    last = run('git', '-c', 'user.name=x', '-c', 'user.email=x@y', *words.split(), cwd='repo')\n"
     "assert last.strip()"),
    ("git-status", "ask git about the protected repository's files",
     "need('git'); assert run('git', 'hash-object', '--stdin', input='x')"),
    ("sqlite", "write a database with a write-ahead log from two connections",
     "import sqlite3\n"
     "a, b = (sqlite3.connect('d.db', timeout=5) for _ in 'ab')\n"
     "assert a.execute('pragma journal_mode=wal').fetchone() == ('wal',)\n"
     "a.execute('create table t(x)'); a.execute('insert into t values (1)'); a.commit()\n"
     "assert b.execute('select x from t').fetchall() == [(1,)]; a.close(); b.close()"),
    ("asyncio-thread", "await something in a thread",
     "import asyncio\nassert asyncio.run(asyncio.wait_for(asyncio.to_thread(lambda: 7), 10)) == 7"),
    ("asyncio-process", "await a process",
     "import asyncio\n"
     "async def f():\n"
     "    p = await asyncio.create_subprocess_exec('sh', '-c', 'exit 3'); return await p.wait()\n"
     "assert asyncio.run(asyncio.wait_for(f(), 10)) == 3"),
    ("executor", "use a pool of processes",
     "from concurrent.futures import ProcessPoolExecutor\n"
     "with ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1, -2])) == [1, 2]"),
    ("shared-memory", "share memory between processes",
     "from multiprocessing import shared_memory\n"
     "m = shared_memory.SharedMemory(create=True, size=10); m.buf[0] = 7\n"
     "n = shared_memory.SharedMemory(m.name); assert n.buf[0] == 7; n.close(); m.close(); m.unlink()"),
    ("semaphores", "use named semaphores and locks",
     "import multiprocessing\nl = multiprocessing.Lock(); l.acquire(); l.release(); multiprocessing.Queue()"),
    ("sysv-memory", "make System V memory",
     "i = call('shmget', 0, 4096, 0o1600); ctypes.CDLL(None).shmctl(i, 0, None)"),
    ("loopback", "listen and connect on loopback",
     "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname(), 5)\n"
     "t, _ = s.accept(); c.sendall(b'x'); assert t.recv(1) == b'x'"),
    ("loopback-udp", "send datagrams on loopback",
     "a = socket.socket(2, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0)); a.settimeout(5)\n"
     "socket.socket(2, socket.SOCK_DGRAM).sendto(b'x', a.getsockname()); assert a.recv(1) == b'x'"),
    ("unix-server", "listen and connect on a unix socket of its own",
     "s = socket.socket(1); s.bind('unix-server'); s.listen()\n"
     "c = socket.socket(1); c.connect('unix-server')\n"
     "t, _ = s.accept(); c.sendall(b'x'); assert t.recv(1) == b'x'; os.unlink('unix-server')"),
    ("localhost", "resolve localhost", "assert socket.getaddrinfo('localhost', 80)"),
    ("socket-pair", "pass a descriptor over a pair of sockets",
     "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0])\n"
     "assert len(socket.recv_fds(b, 1, 1)[1]) == 1"),
    ("node", "serve and fetch with Node",
     f"need('node'); pathlib.Path('s.js').write_text({_NODE!r}); assert run('node', 's.js') == 'served\\n'"),
    ("processes", "run a tree of processes and pipes",
     "assert run('sh', '-c', '(echo a; (echo b; sh -c \"echo c\") | cat) | wc -l; wait').strip() == '3'"),
    ("process-list", "list processes with ps", "need('ps'); assert len(run('ps', '-ef').splitlines()) >= 3"),
    ("detached", "start a session of its own", "assert run('setsid', 'sh', '-c', 'echo x') == 'x\\n'"),
    ("signals", "handle signals and kill a child",
     "got = []; signal.signal(10, lambda *_: got.append(1)); os.kill(os.getpid(), 10)\n"
     "p = subprocess.Popen(['sleep', '60']); p.terminate(); assert p.wait(10) == -15; assert got"),
    ("alarms", "use timers",
     "signal.pthread_sigmask(signal.SIG_BLOCK, {14}); signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
     "assert signal.sigwait({14}) == 14"),
    ("threads", "run threads",
     "import threading\nfound = []\n"
     "ts = [threading.Thread(target=found.append, args=(i,)) for i in range(50)]\n"
     "[t.start() for t in ts]; [t.join() for t in ts]; assert len(found) == 50"),
    ("exec-own", "run a program that was just made",
     "p = pathlib.Path('tool'); p.write_text('#!/bin/sh\\necho made'); p.chmod(0o755)\n"
     "assert run('./tool') == 'made\\n'"),
    ("just-in-time", "run machine code made at run time",
     "assert machine_code(bytes.fromhex('b807000000c3')) == 7"),
    ("devices", "use the usual devices",
     "opened('/dev/null', os.O_RDWR); open('/dev/null', 'w').write('x'); open('/dev/full', 'rb').read(1)\n"
     "assert open('/dev/zero', 'rb').read(2) == b'\\0\\0'\n"
     "assert len(open('/dev/urandom', 'rb').read(9)) == 9"),
    ("proc-self", "read /proc/self and the like",
     "show('/proc/self/cmdline'); show('/proc/cpuinfo'); show('/proc/meminfo'); show('/proc/mounts')\n"
     "assert os.readlink('/proc/self/exe'); assert os.listdir('/proc/self/fd')"),
    ("zones", "use time zones and locales",
     "import locale, time\nos.environ['TZ'] = 'UTC+3'; time.tzset(); assert time.timezone == 10800\n"
     "locale.setlocale(locale.LC_ALL, 'C.UTF-8')"),
    ("users", "look up users", "import pwd; assert pwd.getpwuid(0).pw_name == 'root'; run('id')"),
    ("pipes", "use named pipes",
     "os.mkfifo('p'); fd = os.open('p', os.O_RDWR); os.write(fd, b'x'); assert os.read(fd, 1) == b'x'"),
    ("watching", "watch a directory",
     "fd = libc.inotify_init1(0); assert libc.inotify_add_watch(fd, b'.', 0x100) > 0\n"
     "create('f'); assert os.read(fd, 100)"),
    ("own-terminal", "open a terminal and run a shell on it",
     "import pty\n"
     "pid, fd = pty.fork()\n"
     "if pid == 0: os.execlp('sh', 'sh', '-c', 'tty; stty size')\n"
     "text = b''\n"
     "with contextlib.suppress(OSError):\n"
     "    while chunk := os.read(fd, 1024): text += chunk\n"
     "assert b'/dev/pts/' in text, text; assert os.waitpid(pid, 0)[1] == 0"),
)  # fmt: skip

EVERYDAY: Final = (
    *(
        Attempt(
            f"use-multiprocessing-{method}",
            Guarantee.USABLE,
            f"use multiprocessing with the start method {method}",
            f"assert python({_POOL.format(method=method)!r}) == '55\\n'",
            WORKS,
        )
        for method in ("fork", "spawn", "forkserver")
    ),
    *(Attempt(f"use-{id_}", Guarantee.USABLE, title, script, WORKS) for id_, title, script in _EVERYDAY),
    Attempt(
        "use-job-control",
        Guarantee.USABLE,
        "stop and continue a job on a terminal",
        "need('bash')\n"
        "jobs = 'sleep 60 & kill -STOP %1; jobs; kill -CONT %1; kill %1; echo over'\n"
        "text = run('bash', '-ic', jobs, stdin=0)\n"
        "assert 'over' in text and 'job control' not in text and 'ioctl' not in text, text\n"
        "assert os.tcgetpgrp(0) > 0; assert os.ttyname(0)",
        WORKS,
        tty=True,
    ),
    Attempt(
        "use-terminal",
        Guarantee.USABLE,
        "open one's own terminal by name",
        "fd = os.open('/dev/tty', os.O_RDWR); os.write(fd, b'x'); assert os.isatty(fd)\n"
        "import termios; termios.tcsetattr(fd, termios.TCSANOW, termios.tcgetattr(fd))\n"
        "os.get_terminal_size(fd)",
        WORKS,
        tty=True,
    ),
)
