/* 4 of 4: the callable object, and the module. */
static PyObject *call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *keywords) {
  Front *self = (Front *)object;
  PyObject *entry = NULL, *result = NULL, *ordered[MAX_PARAMETERS + 1];
  PyObject *const *own = NULL;
  Call c;
  if (self->o[FALLBACK] == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "a prepared launch was called while it was being deleted");
    return NULL;
  }
  c.n = c.pointers = 0;
  c.together = 0;
  c.device = NULL;
  c.device_number = 0;
  if (PyVectorcall_NARGS(nargsf) == 1 + self->positional) own = in_order(self, args, keywords, ordered);
  if (own != NULL && usual(self)) entry = look_up(self, &c, own);
  int go = entry != NULL && chosen(self, PyTuple_GET_ITEM(entry, CONFIG), PyTuple_GET_ITEM(entry, CHOICE));
  if (go && !self->staged)
    go = PyTuple_GET_ITEM(entry, LAUNCH) != Py_None &&
         compiled(self, &c, PyTuple_GET_ITEM(entry, SLOT), PyTuple_GET_ITEM(entry, KERNEL));
  if (go) {
    result = self->staged ? hand_on(self, entry, own) : launch(self, &c, entry, own);
  } else {
    PyErr_Clear();
    result = PyObject_Vectorcall(self->o[FALLBACK], args, nargsf, keywords);
  }
  Py_XDECREF(entry);
  forget(&c);
  return result;
}

static int traverse(PyObject *object, visitproc visit, void *arg) {
  Front *self = (Front *)object;
  for (int i = 0; i < OBJECTS; i++) Py_VISIT(self->o[i]);
  Py_VISIT(self->tuner);
  Py_VISIT(self->jit);
  return 0;
}

static int clear(PyObject *object) {
  Front *self = (Front *)object;
  for (int i = 0; i < OBJECTS; i++) Py_CLEAR(self->o[i]);
  Py_CLEAR(self->tuner);
  Py_CLEAR(self->jit);
  return 0;
}

static void dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  PyObject_GC_Del(object);
}

static PyTypeObject FrontType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kerntune.kernels.dispatch.front.Front",
    .tp_basicsize = sizeof(Front),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Front, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_dealloc = dealloc,
};

/* front(objects, parameters, positional, single, staged, layouts, binary, one_device, order) */
static PyObject *make(PyObject *module, PyObject *args) {
  PyObject *objects, *parameters;
  int positional, single, staged, layouts, binary, one_device, order;
  if (!PyArg_ParseTuple(args, "O!O!iiiiiii", &PyTuple_Type, &objects, &PyTuple_Type, &parameters, &positional, &single,
                        &staged, &layouts, &binary, &one_device, &order))
    return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(parameters);
  if (PyTuple_GET_SIZE(objects) != OBJECTS || count > MAX_PARAMETERS) {
    PyErr_SetString(PyExc_ValueError, "another number of objects, or too many parameters");
    return NULL;
  }
  int lists[] = {ENTERING, LEAVING, RUNNING};
  int dicts[] = {TABLE, PROFILER, RUNTIME, RUNTIME_THEN, COMPILATION, COMPILATION_THEN};
  int fine = PyTuple_CheckExact(PyTuple_GET_ITEM(objects, KEYWORDS)) &&
             PyTuple_CheckExact(PyTuple_GET_ITEM(objects, NAMES)) &&
             PyTuple_GET_SIZE(PyTuple_GET_ITEM(objects, NAMES)) == count &&
             PyType_Check(PyTuple_GET_ITEM(objects, JITFUNCTION));
  for (int i = 0; i < 3; i++) fine = fine && PyList_CheckExact(PyTuple_GET_ITEM(objects, lists[i]));
  for (int i = 0; i < 6; i++) fine = fine && PyDict_CheckExact(PyTuple_GET_ITEM(objects, dicts[i]));
  if (!fine) {
    PyErr_SetString(PyExc_TypeError, "an object of another type than the launch looks at");
    return NULL;
  }
  Front *self = PyObject_GC_New(Front, &FrontType);
  if (self == NULL) return NULL;
  for (int i = 0; i < OBJECTS; i++) self->o[i] = Py_NewRef(PyTuple_GET_ITEM(objects, i));
  self->tuner = PyObject_GenericGetDict(self->o[TUNER], NULL);
  self->jit = PyObject_GenericGetDict(self->o[JIT], NULL);
  self->vectorcall = call;
  self->count = (int)count;
  self->positional = positional, self->single = single, self->staged = staged, self->layouts = layouts;
  self->binary = binary, self->one_device = one_device, self->order = order;
  for (Py_ssize_t i = 0; i < count; i++) {
    Parameter *p = &self->parameters[i];
    fine = fine && PyArg_ParseTuple(PyTuple_GET_ITEM(parameters, i), "iiii", &p->kind, &p->source, &p->exact,
                                    &p->constexpr_);
  }
  if (!fine || self->tuner == NULL || self->jit == NULL) {
    Py_DECREF(self);
    return NULL;
  }
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

/* use_driver(address): where cuLaunchKernel is, 0 for none. */
static PyObject *use_driver(PyObject *module, PyObject *address) {
  void *at = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return NULL;
  memcpy(&launch_kernel, &at, sizeof at);
  Py_RETURN_NONE;
}

/* use_exchange(capsule, device_type, types, [(tensor, dtype)]): read tensors of these types through DLPack's C exchange.
   Each tensor is an example of its element type. Returns whether this is possible: not with a capsule of other contents,
   as another torch may have; None ends it. */
#define CAPSULE "dlpack_exchange_api"
static PyObject *use_exchange(PyObject *module, PyObject *args) {
  PyObject *capsule, *types, *samples;
  int device_type;
  if (!PyArg_ParseTuple(args, "OiO!O!", &capsule, &device_type, &PyTuple_Type, &types, &PyList_Type, &samples)) return NULL;
  exchange.api = NULL;
  if (!PyCapsule_IsValid(capsule, CAPSULE) || PyTuple_GET_SIZE(types) == 0) Py_RETURN_FALSE;
  Exchange *api = PyCapsule_GetPointer(capsule, CAPSULE);
  if (api == NULL) return NULL;
  while (api != NULL && api->major > ABI) api = api->older;
  if (api == NULL || api->major != ABI || api->describe == NULL) Py_RETURN_FALSE;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
    PyObject *one, *dtype;
    TensorInfo info;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(samples, i), "OO", &one, &dtype)) return NULL;
    int has_info = (PyObject *)Py_TYPE(one) == PyTuple_GET_ITEM(types, 0) && api->describe(one, &info) == 0;
    PyErr_Clear(); /* element types without an example are read from each tensor */
    PyObject **place = has_info ? dtype_place(&info) : NULL;
    if (place != NULL) Py_XSETREF(*place, Py_NewRef(dtype));
  }
  for (int i = 0; i < EXACT_TYPES; i++) {
    PyObject *type = i < PyTuple_GET_SIZE(types) ? PyTuple_GET_ITEM(types, i) : NULL;
    Py_XSETREF(exchange.types[i], (PyTypeObject *)Py_XNewRef(type));
  }
  exchange.api = api;
  exchange.device_type = device_type;
  Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {{"front", make, METH_VARARGS, "A prepared launch."},
                                {"finder", make_finder, METH_VARARGS, "The look-up of a choice."},
                                {"use_settings", use_settings, METH_VARARGS, "Where torch's settings are asked for."},
                                {"use_driver", use_driver, METH_O, "Where cuLaunchKernel is."},
                                {"use_exchange", use_exchange, METH_VARARGS, "The exchange to read tensors through."},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kerntune_front", NULL, -1, methods};

PyMODINIT_FUNC PyInit_kerntune_front(void) {
  struct { PyObject **to; const char *text; } names[] = {
      {&s_run, "run"}, {&s_enabled, "_is_profiler_enabled"}, {&s_data_ptr, "data_ptr"}, {&s_properties[IS_CUDA], "is_cuda"},
      {&s_get_device, "get_device"}, {&s_properties[DTYPE], "dtype"}, {&s_properties[REQUIRES_GRAD], "requires_grad"},
      {&s_shape, "shape"}, {&s_stride, "stride"}, {&s_base, "base"},
      {&s_block_shape, "block_shape"}, {&s_configs, "configs"}, {&s_cache, "cache"}, {&s_fn, "fn"},
      {&s_device_caches, "device_caches"}, {&s_best_config, "best_config"}, {&s_get, "get"}, {&s_launch, "launch"}};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    if ((*names[i].to = PyUnicode_InternFromString(names[i].text)) == NULL) return NULL;
  zero = PyLong_FromLong(0);
  two = PyLong_FromLong(2);
  if (zero == NULL || two == NULL || PyType_Ready(&FrontType) < 0 || PyType_Ready(&FinderType) < 0) return NULL;
  return PyModule_Create(&definition);
}
