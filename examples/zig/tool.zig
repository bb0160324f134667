//! Two tools, with nothing but the contract of docs/contract.md.

const std = @import("std");

extern "toolhost_v1" fn read(field: i32, ptr: ?[*]u8, cap: usize) i32;
extern "toolhost_v1" fn write(stream: i32, ptr: [*]const u8, len: usize) i32;
extern "toolhost_v1" fn call_start(op: [*]const u8, op_len: usize, ptr: [*]const u8, len: usize) i32;

const Field = struct {
    const args = 0;
    const tool = 1;
    const response = 3;
};
const Stream = struct {
    const result = 0;
    const err = 1;
    const manifest = 2;
    const log_error = 11;
};
const waiting = 4;

/// Nothing is freed: each call has an instance of its own.
const gpa = std.heap.wasm_allocator;

fn field(number: i32) ![]u8 {
    const text = try gpa.alloc(u8, @intCast(@max(0, read(number, null, 0))));
    _ = read(number, text.ptr, text.len);
    return text;
}

fn args(comptime T: type) !T {
    return std.json.parseFromSliceLeaky(T, gpa, try field(Field.args), .{});
}

fn result(value: anytype) !i32 {
    const text = try std.json.Stringify.valueAlloc(gpa, value, .{});
    _ = write(Stream.result, text.ptr, text.len);
    return 0;
}

/// An error whose text is for the model.
fn fail(text: []const u8) i32 {
    _ = write(Stream.err, text.ptr, text.len);
    return 1;
}

fn count() !i32 {
    const in = try args(struct { text: []const u8 });
    var words: usize = 0;
    var longest: []const u8 = "";
    var each = std.mem.tokenizeAny(u8, in.text, " \t\r\n\"");
    while (each.next()) |word| {
        words += 1;
        if (word.len > longest.len) longest = word;
    }
    if (words == 0) return fail("the text has no words");
    return result(.{ .words = words, .longest = longest });
}

/// What a call needs after its wait. It is memory, so the host can store it and continue elsewhere.
var reminder: []const u8 = "";

fn remind() !i32 {
    const in = try args(struct { text: []const u8, ms: u64 });
    reminder = in.text;
    const request = try std.json.Stringify.valueAlloc(gpa, .{ .ms = in.ms }, .{});
    const id = call_start("sleep", "sleep".len, request.ptr, request.len);
    return if (id < 0) refused() else waiting;
}

/// The host has refused an operation, or it has failed.
fn refused() !i32 {
    const Failure = struct { code: []const u8, message: []const u8 };
    const failure = try std.json.parseFromSliceLeaky(Failure, gpa, try field(Field.response), .{});
    return fail(failure.message);
}

/// What is wrong with the plugin is for the operator.
fn broken(e: anyerror) i32 {
    const name = @errorName(e);
    _ = write(Stream.log_error, name.ptr, name.len);
    return 2;
}

fn invoke() !i32 {
    const tool = try field(Field.tool);
    if (std.mem.eql(u8, tool, "count")) return count();
    if (std.mem.eql(u8, tool, "remind")) return remind();
    return fail("no such tool");
}

export fn toolhost_invoke() i32 {
    return invoke() catch |e| broken(e);
}

/// The sleep has ended: there was no other operation.
export fn toolhost_resume(_: i32, code: i32) i32 {
    return (if (code < 0) refused() else result(reminder)) catch |e| broken(e);
}

export fn toolhost_describe() i32 {
    const manifest = @embedFile("manifest.json");
    _ = write(Stream.manifest, manifest, manifest.len);
    return 0;
}
