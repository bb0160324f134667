(() => {
  class Vector {
    constructor(x, y, z) { this.x = x; this.y = y; this.z = z; }
    plus(o) { return new Vector(this.x + o.x, this.y + o.y, this.z + o.z); }
    times(k) { return new Vector(this.x * k, this.y * k, this.z * k); }
    get length() { return Math.sqrt(this.x * this.x + this.y * this.y + this.z * this.z); }
  }

  function life(size, rounds) {
    let cells = Array.from({ length: size * size }, (_, i) => (i * 7 + (i >> 3)) % 3 === 0);
    for (let r = 0; r < rounds; r++) {
      cells = cells.map((alive, i) => {
        let n = 0;
        for (const d of [-size - 1, -size, -size + 1, -1, 1, size - 1, size, size + 1]) if (cells[(i + d + cells.length) % cells.length]) n++;
        return n === 3 || (alive && n === 2);
      });
    }
    return cells.filter(Boolean).length;
  }

  function parse(text) {
    let at = 0;
    const factor = () => {
      if (text[at] === '(') { at++; const v = sum(); at++; return v; }
      const from = at;
      while (at < text.length && text[at] >= '0' && text[at] <= '9') at++;
      return Number(text.slice(from, at));
    };
    const product = () => { let v = factor(); while (text[at] === '*') { at++; v = (v * factor()) % 1000003; } return v; };
    const sum = () => { let v = product(); while (text[at] === '+') { at++; v = (v + product()) % 1000003; } return v; };
    return sum();
  }

  let position = new Vector(0, 0, 0);
  for (let i = 0; i < 15000; i++) position = position.plus(new Vector(i % 7, i % 11, i % 13).times(0.5));
  let total = 0;
  for (let k = 0; k < 40; k++) {
    let expression = String(k);
    for (let i = 2; i < 60; i++) expression = i % 3 ? `${expression}*${i}` : `(${expression}+${i})`;
    total += parse(expression);
  }
  return [position.length.toFixed(6), life(24, 12), total].join(' ');
})()
