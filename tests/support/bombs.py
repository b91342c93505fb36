"""Programs that use more than they should, each bounded in what it does where there is no limit."""

from typing import Final

MEMORY_BYTES: Final = 256 << 20
PROCESSES: Final = 150
DISK_BYTES: Final = 24 << 20

# It stays for a moment, so that whoever only looks can see it.
MEMORY: Final = f"""
import time
kept = [bytearray(b"x") * (4 << 20) for _ in range({MEMORY_BYTES} >> 22)]
print("allocated", flush=True)
time.sleep(1)
"""

# In a process below the command, which survives it if nothing ends both.
MEMORY_OF_A_CHILD: Final = f"""
import os, sys, time
if os.fork() == 0:
    kept = [bytearray(b"x") * (4 << 20) for _ in range({MEMORY_BYTES} >> 22)]
    os._exit(0)
os.wait()
print("survived", flush=True)
time.sleep(30)
"""

# As many processes as it gets; it stays for a moment, so that whoever only looks can see it.
FORKS: Final = f"""
import os, time
made, refused = 0, 0
end = time.monotonic() + 20
for _ in range({PROCESSES}):
    try:
        if os.fork() == 0:
            time.sleep(max(0, end - time.monotonic()))
            os._exit(0)
        made += 1
    except BlockingIOError:
        refused += 1
print(made, refused, flush=True)
time.sleep(0.5)
os.killpg(0, 9)
"""

DISK: Final = f"""
import os, sys, time
for number in range({DISK_BYTES} >> 20):
    with open(f"filler-{{number}}", "wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.02)
print("written")
"""

ONE_FILE: Final = f"""
with open("filler", "wb", buffering=0) as file:
    for _ in range({DISK_BYTES} >> 20):
        file.write(bytes(1 << 20))
print("written")
"""

FILES: Final = """
import os
kept = []
try:
    for _ in range(400):
        kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError as exc:
    print(exc.errno)
print(len(kept))
"""

# Work that is done in a second of the wall's time, by as many processes as there are arguments for.
SPIN: Final = """
import os, sys, time
def spin():
    end, work = time.monotonic() + 1.0, 0
    begun = time.process_time()
    while time.monotonic() < end:
        work += 1
    return time.process_time() - begun
children = []
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(spin()).encode())
        os._exit(0)
    children.append(read)
print(sum(float(os.read(child, 64)) for child in children))
"""
