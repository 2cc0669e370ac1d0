/* 2 of 4: whether an entry is still valid, and its launch, through the driver itself or Triton's launcher. */
static int chosen(Front *self, PyObject *config, PyObject *choice) {
  if (PyDict_GetItemWithError(self->tuner, s_fn) != self->o[FN]) return 0;
  PyObject *configs = PyDict_GetItemWithError(self->tuner, s_configs);
  if (configs == NULL || !(PyList_CheckExact(configs) || PyTuple_CheckExact(configs))) return 0;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(configs);
  if (self->single) return count == 1 && PySequence_Fast_GET_ITEM(configs, 0) == config;
  PyObject *cache = PyDict_GetItemWithError(self->tuner, s_cache); /* looked up only if there are several configs */
  return count > 1 && cache != NULL && PyDict_Check(cache) && PyDict_GetItemWithError(cache, choice) == config;
}

static int note(Front *self, PyObject *config) {
  if (PyDict_GetItemWithError(self->tuner, s_best_config) == config) return 1;
  return !PyErr_Occurred() && PyObject_SetAttr(self->o[TUNER], s_best_config, config) == 0;
}

static int compiled(Front *self, Call *c, PyObject *slot, PyObject *kernel) {
  PyObject *caches = PyDict_GetItemWithError(self->jit, s_device_caches);
  PyObject *cache = caches != NULL && PyDict_Check(caches) ? PyDict_GetItemWithError(caches, c->device) : NULL;
  int whole = cache != NULL && PyTuple_Check(cache) && PyTuple_GET_SIZE(cache) > 0;
  PyObject *kernels = whole ? PyTuple_GET_ITEM(cache, 0) : NULL;
  return kernels != NULL && PyDict_Check(kernels) && PyDict_GetItemWithError(kernels, slot) == kernel;
}

/* The grid's extents, new references: it may be a function of the arguments and what the config sets. */
static int extents(Front *self, PyObject *grid, PyObject *rest, PyObject *const *args, PyObject **xyz) {
  Py_INCREF(grid);
  if (!PyTuple_CheckExact(grid) && PyCallable_Check(grid)) {
    PyObject *shown = PyDict_New(), *function = grid;
    int fine = shown != NULL;
    for (int i = 0; fine && i < self->count; i++) {
      Parameter *p = &self->parameters[i];
      if (p->kind != ABSENT) fine = PyDict_SetItem(shown, PyTuple_GET_ITEM(self->o[NAMES], i), args[p->source]) == 0;
    }
    fine = fine && PyDict_Update(shown, rest) == 0;
    grid = fine ? PyObject_CallOneArg(function, shown) : NULL;
    Py_DECREF(function);
    Py_XDECREF(shown);
    if (grid == NULL) return 0;
  }
  Py_ssize_t length = PyObject_Length(grid);
  int fine = length >= 0;
  for (int i = 0; fine && i < 3; i++) {
    xyz[i] = i == 0 || length > i ? PySequence_GetItem(grid, i) : PyLong_FromLong(1);
    fine = xyz[i] != NULL;
  }
  Py_DECREF(grid);
  return fine;
}

static PyObject *scratch(Front *self, PyObject *entry, PyObject **xyz, PyObject *stream) {
  PyObject *size = PyTuple_GET_ITEM(entry, SCRATCH);
  int some = PyObject_IsTrue(size);
  if (some <= 0) return some < 0 ? NULL : Py_NewRef(Py_None);
  PyObject *bytes = Py_NewRef(size);
  for (int i = 0; bytes != NULL && i < 3; i++) Py_SETREF(bytes, PyNumber_Multiply(bytes, xyz[i]));
  PyObject *allocate = bytes == NULL ? NULL : PyObject_CallMethodNoArgs(self->o[ALLOCATOR], s_get);
  PyObject *memory = allocate == NULL ? NULL
      : PyObject_CallFunctionObjArgs(allocate, bytes, PyTuple_GET_ITEM(entry, ALIGN), stream, NULL);
  Py_XDECREF(allocate);
  Py_XDECREF(bytes);
  return memory;
}

/* A parameter's argument for the C launcher, a new reference. */
static PyObject *handed(Front *self, Call *c, int i, PyObject *rest, PyObject *const *args) {
  Parameter *p = &self->parameters[i];
  if (p->constexpr_) return Py_NewRef(Py_None);
  if (passes_address(self, i)) return PyLong_FromUnsignedLongLong(c->addresses[i]);
  if (p->kind != ABSENT) return Py_NewRef(args[p->source]);
  PyObject *value = PyDict_GetItemWithError(rest, PyTuple_GET_ITEM(self->o[NAMES], i));
  if (value == NULL && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, PyTuple_GET_ITEM(self->o[NAMES], i));
  return Py_XNewRef(value);
}

static int into(PyObject *tuple, Py_ssize_t *at, PyObject *owned) {
  if (owned == NULL) return 0;
  PyTuple_SET_ITEM(tuple, (*at)++, owned);
  return 1;
}

/* Triton 3.6 takes scratch before metadata and the arguments one by one, 3.7 metadata first and them as one tuple. */
static PyObject *words(Front *self, Call *c, PyObject *entry, PyObject **xyz, PyObject *stream, PyObject *memory,
                       PyObject *const *args) {
  int apart = self->order == 36;
  PyObject *own = PyTuple_New((apart ? 13 : 0) + self->count), *all = apart ? own : PyTuple_New(16);
  Py_ssize_t at = 0, own_at = apart ? 13 : 0;
  int fine = own != NULL && all != NULL;
  PyObject *packed = PyTuple_GET_ITEM(entry, PACKED);
  PyObject *first[] = {xyz[0], xyz[1], xyz[2], stream, PyTuple_GET_ITEM(entry, FUNCTION),
                       PyTuple_GET_ITEM(entry, COOPERATIVE), PyTuple_GET_ITEM(entry, PDL)};
  PyObject *then36[] = {memory, Py_None, packed, Py_None, Py_None, Py_None};
  PyObject *then37[] = {packed, Py_None, Py_None, Py_None, memory, Py_None,
                        PyTuple_GET_ITEM(entry, ANNOTATIONS), PyTuple_GET_ITEM(entry, TYPES)};
  for (int i = 0; fine && i < 7; i++) fine = into(all, &at, Py_NewRef(first[i]));
  for (int i = 0; fine && i < (apart ? 6 : 8); i++) fine = into(all, &at, Py_NewRef(apart ? then36[i] : then37[i]));
  PyObject *rest = PyTuple_GET_ITEM(entry, REST);
  for (int i = 0; fine && i < self->count; i++) fine = into(own, &own_at, handed(self, c, i, rest, args));
  if (fine && !apart) {
    into(all, &at, own);
    return all;
  }
  if (fine) return all;
  if (!apart) Py_XDECREF(all);
  Py_XDECREF(own);
  return NULL;
}

/* An argument as the binary takes it; for what Python can't convert Triton raises the error. */
static int pack(char type, PyObject *value, unsigned long long *to) {
  *to = 0;
  if (type == 'P' && value == Py_None) return 1;
  if (type == 'f' || type == 'd') {
    double wide = PyFloat_AsDouble(value);
    float narrow = (float)wide;
    if (type == 'd') memcpy(to, &wide, sizeof wide);
    else memcpy(to, &narrow, sizeof narrow);
  } else {
    if (!PyLong_Check(value)) return 0;
    *to = PyLong_AsUnsignedLongLongMask(value);
  }
  return !PyErr_Occurred();
}

static int address_of(PyObject *memory, unsigned long long *to) {
  return as_address(PyLong_Check(memory) ? Py_NewRef(memory) : PyObject_CallMethodNoArgs(memory, s_data_ptr), to);
}

static int extent(PyObject *value, unsigned *to) {
  int overflow = 0;
  long long number = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : -1;
  *to = (unsigned)number;
  return !overflow && number >= 0 && number <= INT32_MAX;
}

/* Launch through the driver itself; 0 (and no error) where Triton's launcher has to launch, or to raise the error. */
static int drive(Front *self, Call *c, PyObject *entry, PyObject **xyz, PyObject *stream, PyObject *memory,
                 PyObject *const *args) {
  PyObject *packed = PyTuple_GET_ITEM(entry, DRIVER), *rest = PyTuple_GET_ITEM(entry, REST);
  if (launch_kernel == NULL || !PyBytes_CheckExact(packed) || PyBytes_GET_SIZE(packed) != sizeof(Plan)) return 0;
  Plan plan;
  memcpy(&plan, PyBytes_AS_STRING(packed), sizeof plan);
  unsigned long long values[MAX_PARAMETERS + 2];
  void *parameters[MAX_PARAMETERS + 2];
  unsigned x, y, z;
  int n = 0, fine = PyLong_CheckExact(stream) && extent(xyz[0], &x) && extent(xyz[1], &y) && extent(xyz[2], &z);
  for (int i = 0; fine && i < self->count; i++) {
    Parameter *p = &self->parameters[i];
    if (plan.types[i] == '-') continue;
    if (passes_address(self, i)) {
      values[n] = c->addresses[i];
      fine = plan.types[i] == 'P';
    } else {
      PyObject *value = p->kind != ABSENT ? args[p->source] : PyDict_GetItemWithError(rest, PyTuple_GET_ITEM(self->o[NAMES], i));
      fine = value != NULL && pack(plan.types[i], value, &values[n]);
    }
    n++;
  }
  if (fine) {
    values[n] = values[n + 1] = 0; /* memory for the kernel itself, and for profiling, of which there is none */
    fine = memory == Py_None || address_of(memory, &values[n]);
  }
  if (fine) {
    for (int i = 0; i < n + 2; i++) parameters[i] = &values[i];
    void *where = PyLong_AsVoidPtr(stream);
    int code = PyErr_Occurred() != NULL;
    Py_BEGIN_ALLOW_THREADS
    if (code == 0 && x != 0 && y != 0 && z != 0)
      code = launch_kernel((void *)(size_t)plan.function, x, y, z, plan.threads, 1, 1, plan.shared, where, parameters, NULL);
    Py_END_ALLOW_THREADS
    fine = code == 0;
  }
  PyErr_Clear();
  return fine;
}

static PyObject *launch(Front *self, Call *c, PyObject *entry, PyObject *const *args) {
  PyObject *xyz[3] = {NULL, NULL, NULL}, *stream = NULL, *memory = NULL, *all = NULL, *done = NULL, *kernel = NULL;
  if (note(self, PyTuple_GET_ITEM(entry, CONFIG)) &&
      extents(self, args[0], PyTuple_GET_ITEM(entry, REST), args, xyz) &&
      (stream = PyObject_CallOneArg(self->o[CURRENT_STREAM], c->device)) != NULL &&
      (memory = scratch(self, entry, xyz, stream)) != NULL &&
      (drive(self, c, entry, xyz, stream, memory, args) ||
       ((all = words(self, c, entry, xyz, stream, memory, args)) != NULL &&
        (done = PyObject_Call(PyTuple_GET_ITEM(entry, LAUNCH), all, NULL)) != NULL)))
    kernel = Py_NewRef(PyTuple_GET_ITEM(entry, KERNEL));
  Py_XDECREF(done);
  Py_XDECREF(all);
  Py_XDECREF(memory);
  Py_XDECREF(stream);
  for (int i = 0; i < 3; i++) Py_XDECREF(xyz[i]);
  return kernel;
}

static PyObject *hand_on(Front *self, PyObject *entry, PyObject *const *args) {
  PyObject *result = NULL, *given = PyTuple_New(self->positional), *named = PyDict_New();
  Py_ssize_t keywords = PyTuple_GET_SIZE(self->o[KEYWORDS]);
  int fine = given != NULL && named != NULL && note(self, PyTuple_GET_ITEM(entry, CONFIG));
  for (int i = 0; fine && i < self->positional; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[1 + i]));
  for (Py_ssize_t i = 0; fine && i < keywords; i++)
    fine = PyDict_SetItem(named, PyTuple_GET_ITEM(self->o[KEYWORDS], i), args[1 + self->positional + i]) == 0;
  if (fine) result = PyObject_CallMethodObjArgs(PyTuple_GET_ITEM(entry, 0), s_launch, args[0], given, named, NULL);
  Py_XDECREF(given);
  Py_XDECREF(named);
  return result;
}
