/* A small stack machine that runs a nested counting loop. */
enum { PUSH, ADD, SUB, LOAD, STORE, JNZ, LT, DUP, MUL, XOR, HALT };
static int prog[64], vars[8], stack[64];
static __attribute__((noinline)) int exec(const int *p) {
	int *sp = stack;
	for (;;) {
		switch (*p++) {
		case PUSH: *sp++ = *p++; break;
		case ADD: sp--; sp[-1] += sp[0]; break;
		case SUB: sp--; sp[-1] -= sp[0]; break;
		case MUL: sp--; sp[-1] *= sp[0]; break;
		case XOR: sp--; sp[-1] ^= sp[0]; break;
		case LOAD: *sp++ = vars[*p++]; break;
		case STORE: vars[*p++] = *--sp; break;
		case JNZ: { int t = *p++; if (*--sp) p = prog + t; break; }
		case LT: sp--; sp[-1] = sp[-1] < sp[0]; break;
		case DUP: sp[0] = sp[-1]; sp++; break;
		case HALT: return vars[1];
		}
	}
}
__attribute__((export_name("run"))) int run(int n) {
	int i = 0;
	prog[i++] = PUSH; prog[i++] = n; prog[i++] = STORE; prog[i++] = 0;
	int top = i;
	prog[i++] = LOAD; prog[i++] = 1; prog[i++] = PUSH; prog[i++] = 31; prog[i++] = MUL; prog[i++] = LOAD; prog[i++] = 0; prog[i++] = XOR;
	prog[i++] = STORE; prog[i++] = 1;
	prog[i++] = LOAD; prog[i++] = 0; prog[i++] = PUSH; prog[i++] = 1; prog[i++] = SUB; prog[i++] = DUP; prog[i++] = STORE; prog[i++] = 0;
	prog[i++] = JNZ; prog[i++] = top; prog[i++] = HALT;
	return exec(prog);
}
