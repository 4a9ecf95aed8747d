//! libuv, as far as the benches need it: a loop with a fixed number of handles of one kind. Declared here by hand,
//! against the system's own library (Debian: libuv1-dev), because the crates that bind all of it need libclang to
//! build. Sizes are asked of the library, so no layout is assumed.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, without_provenance_mut};

/// `uv_loop_t`, whose layout is the library's own business.
#[repr(C)]
struct RawLoop {
    _opaque: [u8; 0],
}

/// `uv_handle_t` and every handle that begins with one.
#[repr(C)]
struct RawHandle {
    _opaque: [u8; 0],
}

type OnPoll = unsafe extern "C" fn(*mut RawHandle, c_int, c_int);
type OnHandle = unsafe extern "C" fn(*mut RawHandle);

#[link(name = "uv")]
unsafe extern "C" {
    safe fn uv_loop_size() -> usize;
    safe fn uv_handle_size(kind: c_int) -> usize;
    fn uv_loop_init(uv_loop: *mut RawLoop) -> c_int;
    fn uv_loop_close(uv_loop: *mut RawLoop) -> c_int;
    fn uv_loop_get_data(uv_loop: *const RawLoop) -> *mut c_void;
    fn uv_loop_set_data(uv_loop: *mut RawLoop, data: *mut c_void);
    fn uv_update_time(uv_loop: *mut RawLoop);
    fn uv_run(uv_loop: *mut RawLoop, mode: c_int) -> c_int;
    fn uv_handle_get_data(handle: *const RawHandle) -> *mut c_void;
    fn uv_handle_set_data(handle: *mut RawHandle, data: *mut c_void);
    fn uv_handle_get_loop(handle: *const RawHandle) -> *mut RawLoop;
    fn uv_close(handle: *mut RawHandle, on_close: OnHandle);
    fn uv_poll_init(uv_loop: *mut RawLoop, handle: *mut RawHandle, descriptor: c_int) -> c_int;
    fn uv_poll_start(handle: *mut RawHandle, events: c_int, on_ready: OnPoll) -> c_int;
    fn uv_timer_init(uv_loop: *mut RawLoop, handle: *mut RawHandle) -> c_int;
    fn uv_timer_start(handle: *mut RawHandle, on_fire: OnHandle, timeout_ms: u64, repeat_ms: u64) -> c_int;
    fn uv_timer_stop(handle: *mut RawHandle) -> c_int;
}

const UV_READABLE: c_int = 1;

/// What the handles of a loop are; the values are `uv_handle_type`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Kind {
    Poll = 8,
    Timer = 13,
}

/// How a loop turns; the values are `uv_run_mode`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Turn {
    /// Blocks until something is there.
    Wait = 1,
    /// Takes what is there.
    Look = 2,
}

/// Whose the memory of a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody's.
    Free,
    /// The loop's.
    Open,
    /// The loop's, until its close callback has run.
    Closing,
}

/// What the callbacks leave for us.
#[derive(Debug, Default)]
struct Seen {
    ready: Vec<usize>,
    closed: usize,
}

/// A loop and its handles, each known by its number.
#[derive(Debug)]
pub(crate) struct Uv {
    kind: Kind,
    // Whole u128s, because those are aligned for everything; only the library looks inside.
    uv_loop: Vec<u128>,
    handles: Vec<u128>,
    /// u128s of one handle.
    stride: usize,
    states: Vec<State>,
    /// The numbers whose handles were told to close.
    closing: Vec<usize>,
    seen: NonNull<Seen>,
}

// SAFETY: a loop may be used by any thread, by one at a time, which `&mut` sees to; nothing in it is bound to a thread.
unsafe impl Send for Uv {}

impl Uv {
    /// A loop with room for `count` handles. Timers can be set at once; polls have to be opened first.
    pub(crate) fn new(kind: Kind, count: usize) -> io::Result<Self> {
        let stride = words(uv_handle_size(kind as c_int));
        let seen = Seen { ready: Vec::with_capacity(count), closed: 0 };
        let mut uv = Self {
            kind,
            uv_loop: vec![0; words(uv_loop_size())],
            handles: vec![0; stride * count],
            stride,
            states: vec![State::Free; count],
            closing: Vec::with_capacity(count),
            seen: NonNull::from(Box::leak(Box::new(seen))),
        };
        let raw = uv.raw_loop();
        // SAFETY: `raw` is aligned memory of the size that the library asks for.
        check(unsafe { uv_loop_init(raw) }).inspect_err(|_| uv.uv_loop.clear())?;
        // SAFETY: the loop was initialised, and `seen` lives until after it is closed.
        unsafe { uv_loop_set_data(raw, uv.seen.as_ptr().cast()) };
        if kind == Kind::Timer {
            for number in 0..count {
                let handle = uv.handle(number)?;
                // SAFETY: the loop is initialised; the handle is memory of a timer's size that no loop knows yet.
                check(unsafe { uv_timer_init(raw, handle) })?;
                uv.opened(number, handle);
            }
        }
        Ok(uv)
    }

    /// Watches a descriptor for reading, level-triggered as libuv always does. `number` is told when it is readable.
    pub(crate) fn poll(&mut self, number: usize, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let (raw, handle) = (self.raw_loop(), self.handle(number)?);
        if self.kind != Kind::Poll || self.state(number) != State::Free {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // SAFETY: the loop is initialised; the handle is memory of a poll's size that no loop knows, as its state says.
        check(unsafe { uv_poll_init(raw, handle, descriptor.as_raw_fd()) })?;
        self.opened(number, handle);
        // SAFETY: the handle was initialised as a poll just now.
        check(unsafe { uv_poll_start(handle, UV_READABLE, on_ready) })
    }

    /// Tells a handle to close. Its number can be opened again after the next turn.
    pub(crate) fn close(&mut self, number: usize) -> io::Result<()> {
        let handle = self.open_handle(self.kind, number)?;
        // SAFETY: the handle is open and not closing; its memory stays until its close callback has run.
        unsafe { uv_close(handle, on_close) };
        self.closing.push(number);
        self.states[number] = State::Closing;
        Ok(())
    }

    /// Sets a timer, counted from the loop's time, in whole milliseconds as libuv's always are.
    pub(crate) fn set_timer(&mut self, number: usize, timeout_ms: u64) -> io::Result<()> {
        let handle = self.open_handle(Kind::Timer, number)?;
        // SAFETY: the handle is an open timer.
        check(unsafe { uv_timer_start(handle, on_fire, timeout_ms, 0) })
    }

    /// Cancels a timer.
    pub(crate) fn cancel_timer(&mut self, number: usize) -> io::Result<()> {
        let handle = self.open_handle(Kind::Timer, number)?;
        // SAFETY: the handle is an open timer.
        check(unsafe { uv_timer_stop(handle) })
    }

    /// Makes now the loop's time.
    pub(crate) fn update_time(&mut self) {
        // SAFETY: the loop is initialised.
        unsafe { uv_update_time(self.raw_loop()) };
    }

    /// Turns once and gives the numbers that became readable or fired.
    pub(crate) fn run(&mut self, turn: Turn) -> &[usize] {
        self.seen().ready.clear();
        // SAFETY: the loop is initialised and no callback is running. What it says is whether handles are left.
        unsafe { uv_run(self.raw_loop(), turn as c_int) };
        if self.seen().closed == self.closing.len() {
            self.seen().closed = 0;
            for number in self.closing.drain(..) {
                self.states[number] = State::Free;
            }
        }
        &self.seen().ready
    }

    fn raw_loop(&mut self) -> *mut RawLoop {
        self.uv_loop.as_mut_ptr().cast()
    }

    fn handle(&mut self, number: usize) -> io::Result<*mut RawHandle> {
        if number >= self.states.len() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.handles.as_mut_ptr().wrapping_add(number * self.stride).cast())
    }

    /// An open handle of that kind.
    fn open_handle(&mut self, kind: Kind, number: usize) -> io::Result<*mut RawHandle> {
        if self.kind != kind || self.state(number) != State::Open {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.handle(number)
    }

    fn state(&self, number: usize) -> State {
        self.states.get(number).copied().unwrap_or(State::Free)
    }

    fn opened(&mut self, number: usize, handle: *mut RawHandle) {
        // SAFETY: the caller initialised the handle. The number travels in place of a pointer and is never followed.
        unsafe { uv_handle_set_data(handle, without_provenance_mut(number)) };
        self.states[number] = State::Open;
    }

    fn seen(&mut self) -> &mut Seen {
        // SAFETY: it lives until `drop`; callbacks touch it too, but run only inside `uv_run`, while nobody holds this.
        unsafe { self.seen.as_mut() }
    }
}

impl Drop for Uv {
    fn drop(&mut self) {
        if !self.uv_loop.is_empty() {
            for number in 0..self.states.len() {
                // One that is not open has nothing to close.
                self.close(number).ok();
            }
            while !self.closing.is_empty() {
                self.run(Turn::Look);
            }
            // SAFETY: every handle's close callback has run.
            if unsafe { uv_loop_close(self.raw_loop()) } != 0 {
                eprintln!("hw-bench: a libuv loop stayed busy; its memory is left alone");
                std::mem::forget((std::mem::take(&mut self.uv_loop), std::mem::take(&mut self.handles)));
                return;
            }
        }
        // SAFETY: it came from a leaked box, and the loop that knew it is closed.
        drop(unsafe { Box::from_raw(self.seen.as_ptr()) });
    }
}

/// u128s that hold so many bytes.
fn words(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<u128>())
}

/// libuv's errors are negated error numbers.
fn check(code: c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// Called by `uv_run` for each readable descriptor. An error counts as readable: whoever reads then meets it.
unsafe extern "C" fn on_ready(handle: *mut RawHandle, _status: c_int, _events: c_int) {
    // SAFETY: libuv calls this with a handle of ours.
    unsafe { on_fire(handle) };
}

unsafe extern "C" fn on_fire(handle: *mut RawHandle) {
    // SAFETY: libuv calls this with an open handle, whose data `opened` set.
    let number = unsafe { uv_handle_get_data(handle) }.addr();
    // SAFETY: as the caller promises, the handle is one of ours.
    let seen = unsafe { seen_by(handle) };
    // SAFETY: `uv_run` is running, so nobody else holds a reference to it.
    unsafe { &mut *seen }.ready.push(number);
}

unsafe extern "C" fn on_close(handle: *mut RawHandle) {
    // SAFETY: libuv calls this with a handle of ours.
    let seen = unsafe { seen_by(handle) };
    // SAFETY: `uv_run` is running, so nobody else holds a reference to it.
    unsafe { &mut *seen }.closed += 1;
}

/// # Safety
/// The handle belongs to the loop of a [`Uv`].
unsafe fn seen_by(handle: *mut RawHandle) -> *mut Seen {
    // SAFETY: the handle was initialised with its loop.
    let uv_loop = unsafe { uv_handle_get_loop(handle) };
    // SAFETY: the loop is alive, since its handles are.
    unsafe { uv_loop_get_data(uv_loop) }.cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_poll_tells_its_number_until_it_is_closed() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut uv = Uv::new(Kind::Poll, 3).expect("a loop");
        uv.poll(2, reader.as_fd()).expect("a poll");
        assert!(uv.run(Turn::Look).is_empty());
        writer.write_all(b"x").expect("room");
        assert_eq!(uv.run(Turn::Wait), [2]);
        assert_eq!(uv.run(Turn::Wait), [2], "level-triggered");
        uv.close(2).expect("open");
        assert!(uv.run(Turn::Look).is_empty());
        uv.poll(2, reader.as_fd()).expect("its number is free again");
        assert!(uv.poll(2, reader.as_fd()).is_err() && uv.poll(3, reader.as_fd()).is_err());
    }

    #[test]
    fn timers_fire_and_can_be_cancelled() {
        let mut uv = Uv::new(Kind::Timer, 2).expect("a loop");
        uv.set_timer(0, 1).expect("set");
        uv.set_timer(1, 1).expect("set");
        uv.cancel_timer(0).expect("cancelled");
        assert_eq!(uv.run(Turn::Wait), [1]);
    }
}
