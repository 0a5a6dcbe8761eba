// Types of admin's API, by the names that the console uses. scripts/console/check.sh generates them from
// /openapi.json, beside a copy of the console that it checks.

/** @typedef {import('../openapi.js').components['schemas']} Schemas */
/** @typedef {Schemas['Overview']} Overview */
/** @typedef {Schemas['Finding']} Finding */
/** @typedef {Schemas['ServiceStatus']} ServiceStatus */
/** @typedef {Schemas['LiveRates']} Rates */
/** @typedef {Schemas['SecondCounts']} SecondCounts */
/** @typedef {Schemas['RedriveView']} Redrive */
/** @typedef {Schemas['Session']} Session */
/** @typedef {Schemas['DeadLetterItem']} DeadLetterItem */
/** @typedef {Schemas['DeadLetterDetail']} DeadLetterDetail */
/** @typedef {Schemas['DeadLetterGroup']} DeadLetterGroup */
/** @typedef {Schemas['DeadLetterPage']} DeadLetterPage */
/** @typedef {Schemas['BulkOutcome']} BulkOutcome */
export {};
