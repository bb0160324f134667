//! The functions of the contract `toolhost_v1`.

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "toolhost_v1")]
extern "C" {
    pub fn read(field: i32, p: *mut u8, cap: usize) -> i32;
    pub fn write(stream: i32, p: *const u8, n: usize) -> i32;
    pub fn progress(done: f64, total: f64, p: *const u8, n: usize) -> i32;
    pub fn call(op: *const u8, op_len: usize, p: *const u8, n: usize) -> i32;
    pub fn call_start(op: *const u8, op_len: usize, p: *const u8, n: usize) -> i32;
}

// Natively there is no host: the author's own unit tests link, fields are absent, operations unknown.
#[cfg(not(target_arch = "wasm32"))]
mod native {
    pub unsafe fn read(_: i32, _: *mut u8, _: usize) -> i32 { -1 }
    pub unsafe fn write(_: i32, _: *const u8, _: usize) -> i32 { 0 }
    pub unsafe fn progress(_: f64, _: f64, _: *const u8, _: usize) -> i32 { 0 }
    pub unsafe fn call(_: *const u8, _: usize, _: *const u8, _: usize) -> i32 { -2 }
    pub unsafe fn call_start(_: *const u8, _: usize, _: *const u8, _: usize) -> i32 { -2 }
}
#[cfg(not(target_arch = "wasm32"))]
pub use native::*;

/// Reads a field of the contract, None if it is absent.
pub fn field(field: i32) -> Option<Vec<u8>> {
    let mut b = Vec::with_capacity(512);
    unsafe {
        let n = usize::try_from(read(field, b.as_mut_ptr(), b.capacity())).ok()?;
        if n > b.capacity() {
            b.reserve_exact(n);
            read(field, b.as_mut_ptr(), n);
        }
        b.set_len(n);
    }
    Some(b)
}
