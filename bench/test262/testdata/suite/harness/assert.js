function assert(ok) {
  if (!ok) throw new Test262Error('expected true');
}
