// Objects, a map and sorting, under AssemblyScript's incremental collector.
class Point {
  constructor(public x: i32, public y: i32) {}
  distance(other: Point): i32 {
    return abs(this.x - other.x) + abs(this.y - other.y);
  }
}

export function run(rounds: i32): i32 {
  let seed: u32 = 1;
  let sum = 0;
  for (let r = 0; r < rounds; r++) {
    const points = new Array<Point>();
    for (let i = 0; i < 2000; i++) {
      seed = seed * 1664525 + 1013904223;
      points.push(new Point((seed >> 8) & 1023, (seed >> 18) & 1023));
    }
    points.sort((a, b) => a.x - b.x || a.y - b.y);
    const counts = new Map<i32, i32>();
    for (let i = 1; i < points.length; i++) {
      const d = points[i].distance(points[i - 1]);
      counts.set(d, (counts.has(d) ? counts.get(d) : 0) + 1);
    }
    const keys = counts.keys();
    for (let i = 0; i < keys.length; i++) sum += keys[i] * counts.get(keys[i]);
  }
  return sum;
}
