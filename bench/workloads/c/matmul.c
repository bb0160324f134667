#define N 160
static double a[N][N], b[N][N], c[N][N];
__attribute__((export_name("run"))) int run(int rounds) {
	for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) { a[i][j] = i * 0.5 + j; b[i][j] = i - j * 0.25; }
	for (int r = 0; r < rounds; r++)
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++) {
				double s = 0;
				for (int k = 0; k < N; k++) s += a[i][k] * b[k][j];
				c[i][j] = s;
			}
	return (int)c[N/2][N/3];
}
