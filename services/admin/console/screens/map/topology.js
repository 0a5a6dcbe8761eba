// The services, and which step consumes what from whom: what the services declare in Rust (STEPS of each service).

/**
 * Step of a service, drawn as an arrow from each producer to its owner.
 * @typedef {{ step: string, owner: string, from: string[], about: string, isOfSaga?: boolean, needs?: string }} Step
 *   isOfSaga: orders may wait for it; needs: a breaker that holds it back while open
 */

/** @type {{ name: string, about: string }[]} */
export const SERVICES = [
  { name: 'order', about: 'Orders and their deadlines' },
  { name: 'inventory', about: 'Products, stock, reservations' },
  { name: 'payment', about: 'Payments' },
  { name: 'bank', about: 'The card processor, called by payment' },
  { name: 'admin', about: 'The operator’s view' },
];

const EVERYONE = ['order', 'inventory', 'payment'];

/** @type {Step[]} */
export const STEPS = [
  { step: 'inventory-stock-reservation', owner: 'inventory', from: ['order'], about: 'Reserves stock for a placed order', isOfSaga: true },
  { step: 'inventory-stock-release', owner: 'inventory', from: ['order'], about: 'Releases the stock of a cancelled order', isOfSaga: true },
  { step: 'inventory-sale', owner: 'inventory', from: ['order'], about: 'Books the stock of a confirmed order as sold' },
  { step: 'payment-processing', owner: 'payment', from: ['inventory'], about: 'Charges the customer once stock is reserved', isOfSaga: true, needs: 'bank' },
  { step: 'payment-refund', owner: 'payment', from: ['order'], about: 'Refunds or voids the payment of a cancelled order', isOfSaga: true },
  { step: 'payment-extension', owner: 'payment', from: ['order'], about: 'Takes over an extended deadline' },
  { step: 'payment-manual-resolution', owner: 'payment', from: ['admin'], about: 'Stops or resumes calls to the bank for an order resolved manually' },
  { step: 'payment-operations', owner: 'payment', from: ['admin'], about: 'Replays, discards and restores dead letters of payment' },
  { step: 'order-confirmation', owner: 'order', from: ['payment'], about: 'Confirms a paid order', isOfSaga: true },
  { step: 'order-cancellation', owner: 'order', from: ['inventory', 'payment'], about: 'Cancels an order without stock or payment' },
  { step: 'order-catalogue', owner: 'order', from: ['inventory'], about: 'Keeps the copy of products and prices' },
  { step: 'order-extension', owner: 'order', from: ['admin'], about: 'Extends deadlines that an operator asks to extend' },
  { step: 'order-operations', owner: 'order', from: ['admin'], about: 'Replays, discards and restores dead letters of order' },
  { step: 'inventory-operations', owner: 'inventory', from: ['admin'], about: 'Replays, discards and restores dead letters of inventory' },
  { step: 'admin-saga-view', owner: 'admin', from: EVERYONE, about: 'Records the facts of each order for the console' },
  { step: 'admin-dead-letters', owner: 'admin', from: [...EVERYONE, 'admin'], about: 'Collects the dead letters of all services' },
  { step: 'admin-audit-log', owner: 'admin', from: ['inventory', 'payment'], about: 'Records changes that operators make at the services' },
  { step: 'admin-operations', owner: 'admin', from: ['admin'], about: 'Replays, discards and restores dead letters of admin' },
];

/** The call to the outside: its breaker, and the tasks that make it. */
export const BANK_CALL = { name: 'bank', owner: 'payment', about: 'Payment charges and refunds at the bank', tasks: ['payment-charge', 'payment-refund'] };

/** Steps of one service. @param {string} service */
export const stepsOf = (service) => STEPS.filter((one) => one.owner === service);

/** @param {string} name */
export const stepNamed = (name) => STEPS.find((one) => one.step === name);
