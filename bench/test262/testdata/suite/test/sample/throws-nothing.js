/*---
negative:
  phase: runtime
  type: RangeError
---*/
;
