// The end of injected faults.
import { Problem, remove } from '../../lib/api.js';

/** Ends that are asked for and not answered. @type {Map<string, Promise<void>>} */
const ending = new Map();

/** Ends one fault. A fault that has ended already is no problem. @param {{ service: string, id: number }} fault @returns {Promise<void>} */
export function endFault({ service, id }) {
  const path = `/api/admin/faults/${service}/${id}`, asked = ending.get(path);
  if (asked) return asked;
  const end = remove(path).catch((problem) => {
    if (!(problem instanceof Problem && problem.status === 404)) throw problem;
  }).finally(() => ending.delete(path));
  ending.set(path, end);
  return end;
}
