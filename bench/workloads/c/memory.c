/* Bulk copies of many sizes and pointer chasing over 4 MiB. */
static unsigned next[1 << 18]; static char a[1 << 20], b[1 << 20];
__attribute__((export_name("run"))) int run(int rounds) {
	unsigned n = 1 << 18, p = 0;
	for (unsigned i = 0; i < n; i++) next[i] = (i * 2654435761u + 12345) & (n - 1);
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < 300000; i++) p = next[p] ^ (i & 7);
		for (int i = 1; i < 2000; i++) __builtin_memcpy(a + i * 16, b + i * 8 + p % 64, 16 + i % 400);
		a[p & 0xfffff]++; __builtin_memcpy(b, a, 1 << 18);
	}
	return p + b[77];
}
