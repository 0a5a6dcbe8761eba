// Rows that stay where they are while somebody reads them.

/** @typedef {import('../../types.js').Schemas['SagaItem']} SagaItem */

/** Pixels scrolled from which a reader is inside the list. */
const SCROLLED = 150;

/** Whether somebody points at a row, has the focus in the list, or has scrolled into it. @param {HTMLElement} list */
function isRead(list) {
  return scrollY > SCROLLED || list.contains(document.activeElement) || (matchMedia('(hover: hover)').matches && list.querySelector('tbody:hover') !== null);
}

/**
 * Rows to show: the newest, or while the list is read those that were shown before, brought up to date.
 * @param {SagaItem[]} shown @param {SagaItem[]} newest @param {HTMLElement | null} list
 * @returns {{ rows: SagaItem[], gone: Set<string>, newer: number, older: number }}
 *   gone: ids that are in the list no more; newer: rows that are not shown; older: rows that are shown, but not among the newest
 */
export function heldInPlace(shown, newest, list) {
  if (shown.length === 0 || !list || !isRead(list)) return { rows: newest, gone: new Set(), newer: 0, older: 0 };
  const current = new Map(newest.map((saga) => [saga.id, saga])), last = newest.at(-1)?.id ?? '';
  const absent = shown.filter((saga) => !current.has(saga.id));
  return {
    rows: shown.map((saga) => current.get(saga.id) ?? saga),
    gone: new Set(absent.filter((saga) => saga.id > last).map((saga) => saga.id)),
    newer: newest.filter((saga) => saga.id > shown[0].id).length,
    older: absent.filter((saga) => saga.id < last).length,
  };
}
