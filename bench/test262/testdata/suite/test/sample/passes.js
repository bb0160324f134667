/*---
description: passes
---*/
assert(true);
