/*---
negative:
  phase: runtime
  type: RangeError
---*/
null.x;
