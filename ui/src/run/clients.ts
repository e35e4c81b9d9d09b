/** Whether a run's environment is somebody's running system: nothing here can play it. */
export const isPlayedByClients = (environment: string) => environment.startsWith("client:");
