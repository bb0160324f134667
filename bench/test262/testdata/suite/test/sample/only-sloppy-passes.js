/*---
description: fails in strict mode
---*/
undeclared = 1;
