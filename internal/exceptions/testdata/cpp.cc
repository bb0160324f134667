#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
struct Guard { const char *name; ~Guard() { std::printf("~%s\n", name); } };
struct Custom { int code; };
static int depth(int n) {
  Guard g{n % 2 ? "odd" : "even"};
  if (n == 0) throw std::runtime_error("bottom");
  return depth(n - 1) + 1;
}
struct Base { virtual ~Base() {} virtual int run(int) { throw Custom{7}; } };
struct Derived : Base { int run(int n) override { if (n > 1) throw n; return n; } };
int main() {
  try { depth(3); } catch (const std::exception &e) { std::printf("caught %s\n", e.what()); }
  Base *all[] = {new Base, new Derived};
  for (int i = 0; i < 4; i++) {
    try {
      try { std::printf("run %d\n", all[i % 2]->run(i)); }
      catch (int n) { std::printf("int %d\n", n); throw; }
      catch (const Custom &c) { std::printf("custom %d\n", c.code); throw std::string("again"); }
    } catch (const std::string &s) { std::printf("string %s\n", s.c_str()); }
    catch (...) { std::printf("rest\n"); }
  }
  try { std::vector<int> v; v.at(3); } catch (const std::out_of_range &) { std::printf("out of range\n"); }
  return 0;
}
