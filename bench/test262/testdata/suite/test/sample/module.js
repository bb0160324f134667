/*---
flags: [module]
---*/
export default 1; assert(this === undefined);
