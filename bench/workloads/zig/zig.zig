//! Conway's game of life on a torus: bytes, bounds, small inlined helpers.
const n = 256;
var a: [n * n]u8 = undefined;
var b: [n * n]u8 = undefined;

fn step(from: *const [n * n]u8, to: *[n * n]u8) void {
    for (0..n) |y| {
        for (0..n) |x| {
            var alive: u8 = 0;
            for ([_]usize{ n - 1, 0, 1 }) |dy| {
                for ([_]usize{ n - 1, 0, 1 }) |dx| {
                    if (dx == 0 and dy == 0) continue;
                    alive += from[(y + dy) % n * n + (x + dx) % n];
                }
            }
            to[y * n + x] = @intFromBool(alive == 3 or (alive == 2 and from[y * n + x] == 1));
        }
    }
}

export fn run(rounds: i32) i32 {
    var x: u32 = 1;
    for (&a) |*c| {
        x = x *% 1664525 +% 1013904223;
        c.* = @truncate(x >> 31);
    }
    var i: i32 = 0;
    while (i < rounds) : (i += 1) {
        step(&a, &b);
        step(&b, &a);
    }
    var h: u32 = 0;
    for (a) |c| h = h *% 31 +% c;
    return @bitCast(h);
}
