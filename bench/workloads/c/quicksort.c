#define N 300000
static int v[N];
static void sort(int *a, int lo, int hi) {
	while (lo < hi) {
		int p = a[(lo + hi) / 2], i = lo, j = hi;
		while (i <= j) {
			while (a[i] < p) i++;
			while (a[j] > p) j--;
			if (i <= j) { int t = a[i]; a[i] = a[j]; a[j] = t; i++; j--; }
		}
		if (j - lo < hi - i) { sort(a, lo, j); lo = i; } else { sort(a, i, hi); hi = j; }
	}
}
__attribute__((export_name("run"))) int run(int rounds) {
	unsigned x = 1, h = 0;
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < N; i++) { x = x * 1664525 + 1013904223; v[i] = x >> 1; }
		sort(v, 0, N - 1);
		for (int i = 0; i < N; i += 1000) h = h * 31 + v[i];
	}
	return h;
}
