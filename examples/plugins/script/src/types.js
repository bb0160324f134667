// What is read when a script is no JavaScript: sucrase, which removes types and keeps
// each line where it is.
import { transform } from 'sucrase';

export function strip(code) {
  return transform(code, { transforms: ['typescript'], disableESTransforms: true, preserveDynamicImport: true }).code;
}
