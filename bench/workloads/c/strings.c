/* Word counting with a hash table: bytes, short calls, memory traffic. */
static char text[1 << 18];
static struct { unsigned hash, count; } table[1 << 12];
static __attribute__((noinline)) int isword(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static __attribute__((noinline)) int lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
static __attribute__((noinline)) void add(unsigned h) {
	unsigned i = h & 4095;
	while (table[i].count && table[i].hash != h) i = (i + 1) & 4095;
	table[i].hash = h; table[i].count++;
}
__attribute__((export_name("run"))) int run(int rounds) {
	unsigned x = 7, out = 0;
	for (unsigned i = 0; i < sizeof text; i++) { x = x * 1103515245 + 12345; unsigned c = x >> 26; text[i] = c < 40 ? 'A' + c % 12 : c < 52 ? 'a' + c % 6 : ' '; }
	for (int r = 0; r < rounds; r++) {
		for (unsigned i = 0; i < 4096; i++) table[i].count = 0;
		unsigned h = 0; int in = 0;
		for (unsigned i = 0; i < sizeof text; i++) {
			if (isword(text[i])) { h = (h ^ lower(text[i])) * 16777619u; in++; }
			else if (in) { if (in < 3) add(h); h = 0; in = 0; }
		}
		for (unsigned i = 0; i < 4096; i++) out = out * 31 + table[i].count;
	}
	return out;
}
