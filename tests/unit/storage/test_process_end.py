"""The end of a process while pylance is called in threads: no abort, no hang, the right exit status."""

from __future__ import annotations

import inspect
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_ns_async.storage.process_end import REFUSAL
from tests.support.budget import thorough, with_usual
from tests.support.processes import SEEDS, stuttering

pytestmark = [pytest.mark.bare, pytest.mark.environment, pytest.mark.long]
LONGEST = 60
"""Seconds after which a process counts as hung."""

INTERRUPTS = (-signal.SIGINT, 1)
"""The possible exit statuses after an interrupt: CPython loses the status of SIGINT if another thread calls `exec`."""

CHILD = """
import asyncio, os, select, sys, threading
import pyarrow as pa
from lance_ns_async import AsyncNamespace, DirNamespace

root, where, what = sys.argv[1:]
ids = [[f"t{i}"] for i in range(300)]
rows = pa.table({"i": range(200_000), "s": ["x" * 20] * 200_000})

def call(ns, new):
    os.write(1, b"begun" + os.linesep.encode())
    match what:
        case "list":
            for id in ns.iter_tables():
                pass
        case "describe":
            ns.describe_tables(ids).raise_for_errors()
        case "read":
            ns.query_table({"id": ["t5"], "k": 1_000, "vector": {"single_vector": []}})
        case "write":
            ns.write([new], rows, mode="overwrite")
        case "open":
            ns.open_many(ids).raise_for_errors()

async def acall(ns, new):
    while True:
        os.write(1, b"begun" + os.linesep.encode())
        match what:
            case "list":
                async for id in ns.iter_tables():
                    pass
            case "write":
                await ns.write([new], rows, mode="overwrite")
            case "open":
                (await ns.open_many(ids)).raise_for_errors()

async def amain():
    async with AsyncNamespace.connect("dir", {"root": root}) as ns, asyncio.TaskGroup() as group:
        for i in range(3):
            group.create_task(acall(ns, f"new_{os.getpid()}_{i}"))

def repeat(ns, new, stop):
    while not stop.is_set():
        call(ns, new)

if where == "asyncio":
    asyncio.run(amain())
ns, stop = DirNamespace(root=root), threading.Event()
if where == "main":
    repeat(ns, f"new_{os.getpid()}", stop)
# Those that are refused at the end are of no interest.
threading.excepthook = lambda args: None
try:
    for i in range(4):
        new = f"new_{os.getpid()}_{i}"
        threading.Thread(target=repeat, args=(ns, new, stop), daemon=where == "daemon").start()
    # A read would not end by a signal that comes just before it.
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
finally:
    stop.set()
sys.exit(3)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lake")
    lance.write_dataset(pa.table({"i": range(1_000)}), str(made / "t0.lance"))
    for i in range(1, 2_000):
        shutil.copytree(made / "t0.lance", made / f"t{i}.lance")
    return made


Process = Callable[..., AbstractContextManager["subprocess.Popen[bytes]"]]


@pytest.fixture(params=SEEDS)
def process(request: pytest.FixtureRequest) -> Process:
    """Returns a function that runs a script with arguments in a process, at full speed and with interruptions."""

    @contextmanager
    def start(script: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-u", "-c", inspect.cleandoc(script), *map(str, arguments)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with child, stuttering(child.pid, request.param):
            try:
                yield child
            finally:
                child.kill()

    return start


def wait_for(child: subprocess.Popen[bytes], lines: int) -> None:
    """Returns when the process has begun this number of calls."""
    assert child.stdout is not None
    for _ in range(lines):
        assert child.stdout.readline()


def interrupt(child: subprocess.Popen[bytes]) -> bytes:
    """Interrupts the process, and returns its error output when it has ended."""
    child.send_signal(signal.SIGINT)
    # `communicate` would close its input, and the process might exit because of that before it handles the signal.
    kept, child.stdin = child.stdin, None
    output = child.communicate(timeout=LONGEST)[1]
    if kept is not None:
        kept.close()
    return output


INTERRUPTED = [
    *(pytest.param("main", "list", 1, marks=thorough), pytest.param("main", "list", 2, marks=thorough)),
    *(("main", "write", 1), pytest.param("main", "open", 1, marks=thorough)),
    pytest.param("thread", "describe", 3, marks=thorough),
    *(pytest.param("daemon", "list", 4, marks=thorough), ("daemon", "read", 9)),
    *(pytest.param("daemon", "read", 30, marks=thorough), pytest.param("asyncio", "list", 3, marks=thorough)),
    ("asyncio", "write", 4),
]
"""The place and the kind of the calls, and the number of calls before the interrupt."""


@pytest.mark.parametrize(("where", "what", "calls"), INTERRUPTED)
def test_an_interrupt_ends_the_process_cleanly(process: Process, root: Path, where: str, what: str, calls: int) -> None:
    with process(CHILD, root, where, what) as child:
        wait_for(child, calls)
        complaints = interrupt(child)
        assert child.returncode in INTERRUPTS, complaints.decode()


@pytest.mark.parametrize(
    ("what", "calls"), with_usual([("list", 4), ("list", 6), ("write", 4), ("open", 5)], ("write", 4))
)
def test_sys_exit_beside_daemon_threads_keeps_its_status(process: Process, root: Path, what: str, calls: int) -> None:
    with process(CHILD, root, "daemon", what) as child:
        wait_for(child, calls)
        # The process exits at the end of its input.
        _, complaints = child.communicate(timeout=LONGEST)
        assert child.returncode == 3, complaints.decode()


DEAF = """
import signal, sys
import pyarrow as pa
from lance_ns_async import DirNamespace
from lance_ns_async.storage import threads

schema = pa.schema([("i", pa.int64())])

def batches():
    (work,) = threads._calling
    print("begun", flush=True)
    work.given_up.wait()
    yield pa.record_batch([[1]], schema=schema)

ns = DirNamespace(root=sys.argv[1])
ns.exists(["t"])
# Another thread receives the signal, so the wait of the main thread goes on.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
ns.write(["t"], pa.RecordBatchReader.from_batches(schema, batches()))
"""


def test_an_interrupt_ends_a_wait_that_the_signal_did_not_reach(process: Process, tmp_path: Path) -> None:
    with process(DEAF, tmp_path) as child:
        wait_for(child, 1)
        complaints = interrupt(child)
        assert child.returncode in INTERRUPTS, complaints.decode()


HUNG = """
import sys
from lance_ns_async import DirNamespace

keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "allow_http": "true"}
options = {f"storage.{key}": value for key, value in keys.items()}
ns = DirNamespace(root="s3://bucket/lake", **options, **{"storage.endpoint": sys.argv[1]})
ns.exists(["t"])
"""


def test_a_storage_that_hangs_is_named_and_left_by_a_second_interrupt(process: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with process(HUNG, f"http://127.0.0.1:{server.getsockname()[1]}") as child:
            connection, _ = server.accept()
            child.send_signal(signal.SIGINT)
            assert child.stderr is not None
            lines: list[bytes] = []
            while not lines or b"interrupted again" not in lines[-1]:
                lines.append(child.stderr.readline())
                assert lines[-1], lines
            assert b"ends before the storage has answered (describe_table t)" in interrupt(child)
            assert child.returncode in INTERRUPTS
            connection.close()


UNDER_WAY = """
import asyncio, select, sys, threading
from lance_namespace import DescribeTableRequest
from lance_ns_async.model import TableId
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.backends.directory.manifest import Directory
from lance_ns_async.backends.directory.transport import LANCE_ERRORS, LanceTransport

root, how, end = sys.argv[1:]
directory, begun = Directory(root, None), threading.Event()
flat = directory.flat

def work():
    while True:
        # Without the question, this stands for one long call.
        (flat if how == "long" else directory.flat).describe_table(DescribeTableRequest(id=["t0"]))
        begun.set()

async def call():
    transport = LanceTransport(Caller(Policy(), LANCE_ERRORS))
    await transport.call(work, subject=TableId(["t0"]), operation="scan_tables")

threading.excepthook = lambda args: print(args.exc_type.__name__, args.exc_value, flush=True)
threading.Thread(target=asyncio.run, args=(call(),), daemon=True).start()
begun.wait()
print("begun", flush=True)
# A read would not end by a signal that comes just before it.
while not select.select([sys.stdin], [], [], 0.1)[0]:
    pass
sys.exit(int(end))
"""


@pytest.mark.parametrize("end", with_usual([0, 3], 3))
def test_work_that_reads_ends_between_two_calls(process: Process, root: Path, end: int) -> None:
    with process(UNDER_WAY, root, "short", end) as child:
        wait_for(child, 1)
        output, complaints = child.communicate(timeout=LONGEST)
        assert (child.returncode, complaints) == (end, b"")
        # The thread that waited for it may have no time left to report it, or to finish its line.
        assert (b"InvalidInputError scan_tables t0: " + REFUSAL.encode() + b"\n").startswith(output)


@pytest.mark.parametrize("end", with_usual([-signal.SIGINT, 0, 3], -signal.SIGINT))
def test_a_call_that_outlasts_the_wait_leaves_the_exit_status_alone(process: Process, root: Path, end: int) -> None:
    with process(UNDER_WAY, root, "long", end) as child:
        wait_for(child, 1)
        assert child.stderr is not None and child.stdin is not None
        if end < 0:
            child.send_signal(signal.SIGINT)
        else:
            child.stdin.write(b"\n")
            child.stdin.flush()
        while b"interrupted again" not in (line := child.stderr.readline()):
            assert line
        assert b"ends before the storage has answered (scan_tables t0)" in interrupt(child)
        assert child.returncode in (INTERRUPTS if end < 0 else (end,))


AT_EXIT = """
import atexit, sys

def early():
    try:
        ns.exists(["t"])
    except InvalidInputError as e:
        print("early:", e)

atexit.register(early)
from lance_namespace.errors import InvalidInputError
from lance_ns_async import DirNamespace

ns = DirNamespace(root=sys.argv[1])

def late():
    try:
        print("late:", ns.exists(["t"]))
    except InvalidInputError as e:
        print("late:", e)

atexit.register(late)
"""


def test_the_end_of_a_process_refuses_calls_of_pylance(process: Process, tmp_path: Path) -> None:
    with process(AT_EXIT, tmp_path) as child:
        output, complaints = child.communicate(timeout=LONGEST)
    late, early = output.decode().splitlines()
    # In Python 3.12, no thread starts once `atexit` runs.
    assert late == "late: False" or (sys.version_info[:2] == (3, 12) and "ending" in late)
    assert (early.startswith("early: ") and "ending" in early) or "closed" in early
    assert (child.returncode, complaints) == (0, b"")


ABANDONED = """
import asyncio, sys
from lance_ns_async import AsyncNamespace

root, how = sys.argv[1:]

async def wait_for_ever():
    async with AsyncNamespace.connect("dir", {"root": root}) as ns:
        await ns.exists(["t"])
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

loop = asyncio.new_event_loop()
task = loop.create_task(wait_for_ever())
loop.run_forever()
if how == "closed":
    loop.close()
sys.exit(3)
"""


@pytest.mark.parametrize("how", ["closed", "stopped"])
def test_a_loop_without_an_end_does_not_delay_the_process(process: Process, tmp_path: Path, how: str) -> None:
    with process(ABANDONED, tmp_path, how) as child:
        child.communicate(timeout=LONGEST)
        assert child.returncode == 3
