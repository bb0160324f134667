"""The event loop of asyncio in a plugin, in place of that of Unix: it waits for operations
of the host, and time is a sleep of the host.

A tool that is a coroutine is run by toolhost._run: when nothing is ready the call returns
to the host, which may store its memory, and continue it after a crash or on another
machine. Within asyncio.run, which has to return, the loop waits in place."""

import asyncio.base_events
import asyncio.events
import heapq
import time

import _toolhost
from toolhost._call import HostError, encode, flush, response

__all__ = ("EventLoop", "SelectorEventLoop", "DefaultEventLoopPolicy")

DENIED = -1


class Stuck(RuntimeError):
    """The loop waits for what nobody will ever do."""


class EventLoop(asyncio.base_events.BaseEventLoop):
    def __init__(self):
        super().__init__()
        self._selector = self
        self._operations = {}  # futures by the ids of operations that are pending
        self._alarm = None  # the id of the sleep that is pending, and when it ends
        self._alarms = {}  # when each sleep ends that is pending, by its id
        self._moved = 0.0  # how far time is ahead of the clock
        self._outer = False  # whether the host continues the loop

    # Time. Without a clock it moves only when all wait for it.

    def time(self):
        return time.monotonic() + self._moved

    def _move(self, when):
        self._moved += max(0.0, when - self.time())

    # What BaseEventLoop asks of a system.

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass

    def run_in_executor(self, executor, func, *args):
        """Runs the function at once: there are no threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    def select(self, timeout):
        """Waits in place, for asyncio.run."""
        if timeout is None and not self._stopping:
            raise Stuck("the program waits for something that never happens")
        if timeout and not self._outer:
            when = self.time() + timeout
            sleep(timeout)
            self._move(when)
        return []

    # Operations of the host.

    def start_operation(self, op, request):
        """A future of the response."""
        flush()
        future = self.create_future()
        id = (_toolhost.call_start if self._outer else _toolhost.call)(op, request)
        if id < 0 or not self._outer:
            settle(future, id)
            return future
        self._operations[id] = future
        future.add_done_callback(lambda f: self._cancel(id) if f.cancelled() else None)
        return future

    def _cancel(self, id):
        if self._operations.pop(id, None):
            _toolhost.call("op.cancel", encode({"id": id}))

    def ended(self, id, code):
        """Takes the end of an operation, by toolhost_resume."""
        future = self._operations.pop(id, None)
        if future and not future.done():
            settle(future, code)
        when = self._alarms.pop(id, None)
        if when is None:
            return
        if id == self._alarm:
            self._alarm = None
        if code >= 0:
            self._move(when)
        elif not self._alarm and self._main:  # the call is being stopped
            self._main.cancel()

    def run(self, main):
        """Runs until main is done, or nothing can be done before an operation of the host has
        ended: then it returns True."""
        self._outer, self._main = True, main
        self._run_forever_setup()
        try:
            while not main.done():
                when = self._next()
                if self._ready or when is not None and when <= self.time():
                    self._run_once()
                elif not self._wait(when):
                    raise Stuck("the tool waits for something that never happens")
                elif not self._ready and not (when is not None and when <= self.time()):
                    return True
            return False
        finally:
            self._run_forever_cleanup()

    def _next(self):
        """When the next timer is due, or None."""
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        return self._scheduled[0]._when if self._scheduled else None

    def _wait(self, when):
        """Makes sure that something ends the wait; False if nothing will."""
        if when is not None and (self._alarm is None or when < self._alarms[self._alarm]):
            id = _toolhost.call_start("sleep", encode({"ms": milliseconds(when - self.time())}))
            if id > 0:
                if self._alarm is not None:
                    _toolhost.call("op.cancel", encode({"id": self._alarm}))
                    del self._alarms[self._alarm]
                self._alarm = id
                self._alarms[id] = when
            elif id != DENIED:
                response(id)
            elif not self._operations:
                self._move(when)  # without a clock
        return when is not None or bool(self._operations)


SelectorEventLoop = EventLoop


class DefaultEventLoopPolicy(asyncio.events.BaseDefaultEventLoopPolicy):
    _loop_factory = EventLoop


def settle(future, code):
    try:
        future.set_result(response(code))
    except HostError as e:
        future.set_exception(e)


def milliseconds(seconds):
    return max(0, -int(-seconds * 1000 // 1))


def sleep(seconds):
    flush()
    code = _toolhost.call("sleep", encode({"ms": milliseconds(seconds)}))
    if code != DENIED:  # without a clock, time only moves
        response(code)
