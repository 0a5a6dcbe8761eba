// Differences between two texts, line by line.

/** Lines that both have, and those of one only. @typedef {{ kind: 'same' | 'removed' | 'added', text: string }} Line */

/** Most pairs of lines to compare; beyond, all lines between the first and the last difference count as changed. */
const MOST_PAIRS = 4_000_000;

/** Longest common subsequence, between the lines that are the same at both ends. @param {string} before @param {string} after @returns {Line[]} */
export function lineDiff(before, after) {
  const was = before.split('\n'), is = after.split('\n');
  let head = 0, tail = 0;
  while (head < was.length && head < is.length && was[head] === is[head]) head++;
  while (tail < was.length - head && tail < is.length - head && was[was.length - 1 - tail] === is[is.length - 1 - tail]) tail++;
  const same = (/** @type {string} */ text) => /** @type {Line} */ ({ kind: 'same', text });
  const middle = compared(was.slice(head, was.length - tail), is.slice(head, is.length - tail));
  return [...was.slice(0, head).map(same), ...middle, ...was.slice(was.length - tail).map(same)];
}

/** @param {string[]} was @param {string[]} is @returns {Line[]} */
function compared(was, is) {
  /** @type {(text: string) => Line} */
  const removed = (text) => ({ kind: 'removed', text });
  /** @type {(text: string) => Line} */
  const added = (text) => ({ kind: 'added', text });
  if (was.length * is.length > MOST_PAIRS) return [...was.map(removed), ...is.map(added)];
  const width = is.length + 1;
  // Length of the longest common subsequence of what follows line `row` and line `column`.
  const lengths = new Uint32Array((was.length + 1) * width);
  for (let row = was.length - 1; row >= 0; row--) {
    for (let column = is.length - 1; column >= 0; column--) {
      const [below, right, both] = [lengths[(row + 1) * width + column], lengths[row * width + column + 1], lengths[(row + 1) * width + column + 1]];
      lengths[row * width + column] = was[row] === is[column] ? both + 1 : Math.max(below, right);
    }
  }
  /** @type {Line[]} */
  const lines = [];
  let row = 0, column = 0;
  while (row < was.length && column < is.length) {
    if (was[row] === is[column]) {
      lines.push({ kind: 'same', text: was[row] });
      row++;
      column++;
    } else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) {
      lines.push(removed(was[row++]));
    } else {
      lines.push(added(is[column++]));
    }
  }
  return [...lines, ...was.slice(row).map(removed), ...is.slice(column).map(added)];
}
