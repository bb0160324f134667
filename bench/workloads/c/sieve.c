static unsigned char composite[2000001];
__attribute__((export_name("run"))) int run(int rounds) {
	int count = 0;
	for (int r = 0; r < rounds; r++) {
		count = 0;
		for (int i = 0; i <= 2000000; i++) composite[i] = 0;
		for (int i = 2; i <= 2000000; i++) {
			if (composite[i]) continue;
			count++;
			for (int j = i + i; j <= 2000000; j += i) composite[j] = 1;
		}
	}
	return count;
}
